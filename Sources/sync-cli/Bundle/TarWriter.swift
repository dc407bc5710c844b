/// Writes a tar archive of regular files in memory (POSIX.1-1988, `ustar`).
struct TarWriter {
  private static let blockBytes = 512
  /// Bytes of the name of a file.
  static let nameBytes = 100

  private(set) var bytes: [UInt8] = []
  /// The time of all files, in seconds since 1970.
  private let time: UInt64

  init(time: UInt64) { self.time = time }

  /// Adds a file. Its name has at most `nameBytes` bytes.
  mutating func add(_ name: String, _ content: [UInt8]) {
    var header = [UInt8](repeating: 0, count: Self.blockBytes)
    func put(_ text: String, at offset: Int) {
      header.replaceSubrange(offset..<offset + text.utf8.count, with: text.utf8)
    }
    func octal(_ number: UInt64, digits: Int, at offset: Int) {
      let text = String(number, radix: 8)
      put(String(repeating: "0", count: max(0, digits - text.count)) + text.suffix(digits), at: offset)
    }
    put(String(decoding: name.utf8.prefix(Self.nameBytes), as: UTF8.self), at: 0)
    octal(0o644, digits: 7, at: 100)
    octal(0, digits: 7, at: 108)
    octal(0, digits: 7, at: 116)
    octal(UInt64(content.count), digits: 11, at: 124)
    octal(time, digits: 11, at: 136)
    put("        ", at: 148)
    put("0", at: 156)
    put("ustar", at: 257)
    put("00", at: 263)
    // The sum is taken with blanks in its own place.
    octal(header.reduce(0) { $0 + UInt64($1) }, digits: 6, at: 148)
    header[154] = 0
    bytes += header + content
    bytes += [UInt8](repeating: 0, count: -content.count & (Self.blockBytes - 1))
  }

  /// Ends the archive: two blocks of zeros.
  mutating func finish() { bytes += [UInt8](repeating: 0, count: 2 * Self.blockBytes) }
}

/// Base64 (RFC 4648, section 4), with padding.
enum Base64 {
  private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
  private static let pad = UInt8(ascii: "=")
  private static let values: [UInt8?] = {
    var values = [UInt8?](repeating: nil, count: 256)
    for (value, letter) in alphabet.enumerated() { values[Int(letter)] = UInt8(value) }
    return values
  }()

  /// Encodes `bytes`.
  static func encode(_ bytes: [UInt8]) -> String {
    var text: [UInt8] = []
    text.reserveCapacity((bytes.count + 2) / 3 * 4)
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let group = bytes[start..<min(start + 3, bytes.count)]
      let bits = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - group.count))
      for place in 0..<4 {
        text.append(place <= group.count ? alphabet[Int(bits >> UInt32(18 - 6 * place)) & 63] : pad)
      }
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// Decodes a text; nil unless it is exactly what `encode` produces.
  static func decode(_ text: String) -> [UInt8]? {
    let letters = Array(text.utf8)
    guard letters.count.isMultiple(of: 4) else { return nil }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(letters.count / 4 * 3)
    for start in stride(from: 0, to: letters.count, by: 4) {
      let last = start + 4 == letters.count
      let padding = last ? letters[start..<(start + 4)].reversed().prefix { $0 == pad }.count : 0
      guard padding <= 2 else { return nil }
      var bits: UInt32 = 0
      for letter in letters[start..<(start + 4 - padding)] {
        guard let value = values[Int(letter)] else { return nil }
        bits = bits << 6 | UInt32(value)
      }
      bits <<= UInt32(6 * padding)
      guard bits & ((UInt32(1) << UInt32(8 * padding)) - 1) == 0 else { return nil }
      for place in 0..<(3 - padding) {
        bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(16 - 8 * place)))
      }
    }
    return bytes
  }
}

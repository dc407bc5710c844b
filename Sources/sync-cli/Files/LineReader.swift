/// The lines of a file or stream, without their ends.
struct LineReader {
  private let source: Descriptor
  private var buffer: [UInt8] = []
  private var start = 0
  private var ended = false
  /// The number of the line that came last, from 1.
  private(set) var number = 0

  /// A longer line is refused, so that a stream without lines cannot fill the memory.
  static let lineBytes = 256 << 20

  init(_ source: Descriptor) { self.source = source }

  /// The next line; nil at the end.
  mutating func next() throws(Failure) -> [UInt8]? {
    var searched = start
    while true {
      if let end = buffer[searched...].firstIndex(of: 0x0A) {
        defer { start = end + 1 }
        number += 1
        return Array(buffer[start..<end])
      }
      searched = buffer.count
      if ended {
        guard start < buffer.count else { return nil }
        defer { start = buffer.count }
        number += 1
        return Array(buffer[start...])
      }
      guard buffer.count - start <= Self.lineBytes else {
        throw Failure(
          .usage,
          "\(Text.printable(source.path)), line \(number + 1): longer than \(Text.size(Self.lineBytes)):"
            + " give one key and value a line")
      }
      let part = try source.read(1 << 20)
      if start > 0 {
        buffer.removeFirst(start)
        searched -= start
        start = 0
      }
      ended = part.isEmpty
      buffer += part
    }
  }
}

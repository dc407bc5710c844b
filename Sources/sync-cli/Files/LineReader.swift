/// The lines of a file or stream, without line ends.
struct LineReader {
  private let source: Descriptor
  private let limit: Int
  private var buffer: [UInt8] = []
  private var start = 0
  private var ended = false
  /// Whether an overlong line is being skipped.
  private var isPassingOver = false
  /// The number of the last line, from 1.
  private(set) var number = 0

  /// One line of a source.
  enum Line: Equatable {
    case text([UInt8])
    /// A line of more than `limit` bytes, which was dropped.
    case tooLong
  }

  /// Longer lines are skipped: otherwise a stream without line ends would exhaust memory.
  static let lineBytes = 256 << 20

  init(_ source: Descriptor, limit: Int = lineBytes) { (self.source, self.limit) = (source, limit) }

  /// The next line; nil at the end.
  mutating func next() throws(Failure) -> Line? {
    try Interruption.check()
    var searched = start
    while true {
      if let end = buffer[searched...].firstIndex(of: 0x0A) {
        return line(upTo: end, nextAt: end + 1)
      }
      searched = buffer.count
      if ended {
        guard start < buffer.count || isPassingOver else { return nil }
        return line(upTo: buffer.count, nextAt: buffer.count)
      }
      if buffer.count - start > limit { isPassingOver = true }
      if isPassingOver { (buffer, start, searched) = ([], 0, 0) }
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

  private mutating func line(upTo end: Int, nextAt next: Int) -> Line {
    defer { (start, isPassingOver) = (next, false) }
    number += 1
    return isPassingOver ? .tooLong : .text(Array(buffer[start..<end]))
  }
}

/// The lines of a file or stream, without their ends.
struct LineReader {
  private let source: Descriptor
  private let limit: Int
  private var buffer: [UInt8] = []
  private var start = 0
  private var ended = false
  /// A line that is too long is under way: its bytes are dropped.
  private var isPassingOver = false
  /// The number of the line that came last, from 1.
  private(set) var number = 0

  /// One line of a source.
  enum Line: Equatable {
    case text([UInt8])
    /// One of more than `limit` bytes, which was not kept.
    case tooLong
  }

  /// A longer line is passed over, so that a stream without lines cannot fill the memory.
  static let lineBytes = 256 << 20

  init(_ source: Descriptor, limit: Int = lineBytes) { (self.source, self.limit) = (source, limit) }

  /// The next line; nil at the end.
  mutating func next() throws(Failure) -> Line? {
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

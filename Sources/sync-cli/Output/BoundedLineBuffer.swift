private import SyncStore

/// Buffers lines for a stream that may have no reader. Never blocks: beyond a bound, lines are dropped and
/// counted.
///
/// Invariants:
/// - the output consists of whole lines, except for the last one when the process ends;
/// - where lines were dropped, a line with their number precedes the next one.
struct BoundedLineBuffer {
  /// Maximum number of buffered bytes.
  static let mostBytes = 256 << 10
  /// A writable pipe accepts this many bytes atomically (`PIPE_BUF`, pipe(7)).
  private static let pieceBytes = 4096

  /// Makes the line that reports the number of dropped lines.
  private let notice: @Sendable (Int) -> String
  private(set) var bytes: [UInt8] = []
  private(set) var lost = 0

  /// Creates an empty buffer.
  init(notice: @escaping @Sendable (Int) -> String) { self.notice = notice }

  /// Adds a line, or counts it as dropped.
  mutating func add(_ line: [UInt8]) {
    appendLossNotice()
    guard lost == 0, bytes.count + line.count <= Self.mostBytes else {
      lost += 1
      return
    }
    bytes += line
  }

  /// Writes what the stream accepts without blocking. False if something is left.
  mutating func drain(to stream: Descriptor, within milliseconds: Int32 = 0) -> Bool {
    while true {
      while !bytes.isEmpty {
        guard stream.isWritable(within: milliseconds) else { return false }
        let piece = Array(bytes.prefix(Self.pieceBytes))
        // The reader is gone: a lost diagnostic is no error.
        do { try stream.write(piece) } catch { bytes = [] }
        bytes.removeFirst(min(bytes.count, piece.count))
      }
      guard lost > 0 else { return true }
      appendLossNotice()
    }
  }

  private mutating func appendLossNotice() {
    guard lost > 0, bytes.count <= Self.mostBytes / 2 else { return }
    bytes += Array(notice(lost).utf8)
    lost = 0
  }
}

private import SyncStore

/// Lines for a stream that nobody may read any more: what finds no place in it is held, up to a bound; beyond that lines are
/// lost, and counted. Nobody ever waits.
///
/// Invariants:
/// - what is written is a row of whole lines, but for the last one when the process ends;
/// - where lines were lost, a line says how many before the next one follows.
struct BoundedLineBuffer {
  /// Bytes that are held at most.
  static let mostBytes = 256 << 10
  /// A pipe that can be written to takes so many bytes at once (`PIPE_BUF`, pipe(7)).
  private static let pieceBytes = 4096

  /// The line that tells how many were lost.
  private let notice: @Sendable (Int) -> String
  private(set) var bytes: [UInt8] = []
  private(set) var lost = 0

  /// None yet.
  init(notice: @escaping @Sendable (Int) -> String) { self.notice = notice }

  /// Takes in a line, or counts it as lost.
  mutating func add(_ line: [UInt8]) {
    appendLossNotice()
    guard lost == 0, bytes.count + line.count <= Self.mostBytes else {
      lost += 1
      return
    }
    bytes += line
  }

  /// Gives on what is taken without waiting. False if something is left.
  mutating func drain(to stream: Descriptor, within milliseconds: Int32 = 0) -> Bool {
    while true {
      while !bytes.isEmpty {
        guard stream.isWritable(within: milliseconds) else { return false }
        let piece = Array(bytes.prefix(Self.pieceBytes))
        // Whoever read it has gone: failing to tell is no failure.
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

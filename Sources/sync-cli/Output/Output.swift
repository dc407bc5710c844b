private import SyncStore

/// Standard output: data and nothing else. Buffered; `finish` tells whether all of it arrived.
final class Output {
  private let descriptor = Descriptor(standard: 1)
  private var buffer: [UInt8] = []
  private static let bufferBytes = 64 << 10
  /// Does a person look on?
  let isTerminal = System.isTerminal(1)

  /// A key as text: a terminal could be upset by what it may hold; a program wants its very bytes.
  func shown(key: [UInt8]) -> [UInt8] { isTerminal ? Array(Text.printable(key).utf8) : key }

  /// Appends bytes, unchanged.
  func write(_ bytes: [UInt8]) throws(Failure) {
    buffer += bytes
    if buffer.count >= Self.bufferBytes { try flush() }
  }

  /// Appends a line.
  func line(_ text: String) throws(Failure) { try write(Array(text.utf8) + [0x0A]) }

  /// Appends a value on a line of its own.
  func line(_ value: JSON) throws(Failure) { try write(value.encoded + [0x0A]) }

  /// Hands over what is buffered.
  func flush() throws(Failure) {
    guard !buffer.isEmpty else { return }
    let bytes = buffer
    buffer = []
    try descriptor.write(bytes)
  }
}

/// Standard error: what is told to people. Failing to tell is no failure of the command.
enum Diagnostics {
  private static let descriptor = Descriptor(standard: 2)
  /// Nil where a line is waited for until it is taken.
  private static let held = LockedField<BoundedLineBuffer?>(nil)

  /// From now on nobody waits for a line to be taken: a daemon is not to stand still because nobody reads what it says. `notice` makes
  /// the line that tells how many were lost.
  static func setNonBlocking(_ notice: @escaping @Sendable (Int) -> String) {
    held.withLock { $0 = BoundedLineBuffer(notice: notice) }
  }

  /// Gives on what is held; waits for a reader, for so many milliseconds at most.
  static func flush(within milliseconds: Int32 = 0) {
    held.withLock { _ = $0?.drain(to: descriptor, within: milliseconds) }
  }

  /// Does a progress line stand on the terminal, without an end of line?
  private static let showsLine = LockedField(false)

  /// `sync-cli: message`, kept on one line whatever the message holds. A progress line makes room for it, and is shown
  /// again when there is more to tell.
  static func report(_ message: String) {
    let clearing = showsLine.withLock { shown in
      defer { shown = false }
      return shown ? "\r\u{1B}[K" : ""
    }
    write("\(clearing)sync-cli: \(Text.printable(ToolWords.translated(message).utf8))\n")
  }

  /// Shows a progress line in place of the one before; nil takes it away.
  static func showLine(_ text: String?) {
    let wasShown = showsLine.withLock { shown in
      defer { shown = text != nil }
      return shown
    }
    if text != nil || wasShown { write("\r\(text ?? "")\u{1B}[K") }
  }

  /// Text as it is: whole lines.
  static func write(_ text: String) {
    let isHeld = held.withLock { lines in
      lines?.add(Array(text.utf8))
      return lines?.drain(to: descriptor) != nil
    }
    if !isHeld { try? descriptor.write(Array(text.utf8)) }
  }
}

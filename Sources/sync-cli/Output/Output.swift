private import SyncStore

/// Standard output, for data only. Buffered; `finish` reports whether all of it was written.
final class Output {
  private let descriptor = Descriptor(standard: 1)
  private var buffer: [UInt8] = []
  private static let bufferBytes = 64 << 10
  /// Whether standard output is a terminal.
  let isTerminal = System.isTerminal(1)

  /// A key for output: escaped on a terminal, which control characters could upset; unchanged for programs.
  func shown(key: [UInt8]) -> [UInt8] { isTerminal ? Array(Text.printable(key).utf8) : key }

  /// The text of a value for output: on a terminal, control characters other than line ends and tabs are
  /// escaped; unchanged for programs.
  func shown(text: [UInt8]) -> [UInt8] {
    guard isTerminal else { return text }
    var shown: [UInt8] = []
    for (index, line) in text.split(separator: 0x0A, omittingEmptySubsequences: false).enumerated() {
      if index > 0 { shown.append(0x0A) }
      for (index, part) in line.split(separator: 0x09, omittingEmptySubsequences: false).enumerated() {
        if index > 0 { shown.append(0x09) }
        shown += Array(Text.printable(part).utf8)
      }
    }
    return shown
  }

  /// Whether the last byte ended a line, or there was none.
  private(set) var isAtLineStart = true

  /// Whether standard output is a pipe without a reader.
  var hasLostReader: Bool { descriptor.hasLostReader }

  /// Appends bytes, unchanged.
  func write(_ bytes: [UInt8]) throws(Failure) {
    try Interruption.check()
    guard let last = bytes.last else { return }
    isAtLineStart = last == 0x0A
    buffer += bytes
    if buffer.count >= Self.bufferBytes { try flush() }
  }

  /// Appends a line.
  func line(_ text: String) throws(Failure) { try write(Array(text.utf8) + [0x0A]) }

  /// Appends a JSON value on a line of its own.
  func line(_ value: JSON) throws(Failure) { try write(value.encoded + [0x0A]) }

  /// Writes what is buffered.
  func flush() throws(Failure) {
    guard !buffer.isEmpty else { return }
    let bytes = buffer
    buffer = []
    try descriptor.write(bytes)
  }
}

/// Standard error, for messages to people. Failing to write one is no error of the command.
enum Diagnostics {
  private static let descriptor = Descriptor(standard: 2)
  /// Nil while lines are written blocking.
  private static let held = LockedField<BoundedLineBuffer?>(nil)

  /// Switches to non-blocking output: a daemon must not stall because its log is not read. `notice` makes the
  /// line that reports the number of dropped lines.
  static func setNonBlocking(_ notice: @escaping @Sendable (Int) -> String) {
    held.withLock { $0 = BoundedLineBuffer(notice: notice) }
  }

  /// Writes buffered lines, waiting for a reader for at most this many milliseconds.
  static func flush(within milliseconds: Int32 = 0) {
    held.withLock { _ = $0?.drain(to: descriptor, within: milliseconds) }
  }

  /// Whether a progress line without line end is on the terminal.
  private static let showsLine = LockedField(false)

  /// What a message is: an error stands out on a terminal.
  enum Kind { case note, error }

  /// Whether messages may have colours: on a terminal that knows them, unless NO_COLOR is set
  /// (https://no-color.org).
  static let hasColours =
    System.isTerminal(2) && System.environment("NO_COLOR") == nil
    && !["dumb", nil].contains { $0 == System.environment("TERM") }

  /// Prints `sync-cli: message` on a single line. A progress line is cleared for it and shown again with the
  /// next update.
  static func report(_ message: String, as kind: Kind = .note) {
    let clearing = showsLine.withLock { shown in
      defer { shown = false }
      return shown ? "\r\u{1B}[K" : ""
    }
    let name = kind == .error && hasColours ? "\u{1B}[31msync-cli:\u{1B}[0m" : "sync-cli:"
    write("\(clearing)\(name) \(Text.printable(ToolWords.translated(message).utf8))\n")
  }

  /// Shows a progress line in place of the previous one; nil removes it.
  static func showLine(_ text: String?) {
    let wasShown = showsLine.withLock { shown in
      defer { shown = text != nil }
      return shown
    }
    if text != nil || wasShown { write("\r\(text ?? "")\u{1B}[K") }
  }

  /// Writes text unchanged; it must consist of whole lines.
  static func write(_ text: String) {
    let isHeld = held.withLock { lines in
      lines?.add(Array(text.utf8))
      return lines?.drain(to: descriptor) != nil
    }
    if !isHeld { try? descriptor.write(Array(text.utf8)) }
  }
}

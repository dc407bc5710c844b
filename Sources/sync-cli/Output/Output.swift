/// Standard output: data and nothing else. Buffered; `finish` tells whether all of it arrived.
final class Output {
  private let descriptor = Descriptor(standard: 1)
  private var buffer: [UInt8] = []
  private static let bufferBytes = 64 << 10
  /// Does a person look on?
  let isTerminal = System.isTerminal(1)

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

  /// `sync-cli: message`, kept on one line whatever the message holds.
  static func report(_ message: String) {
    write("sync-cli: \(Text.printable(ToolWords.said(message).utf8))\n")
  }

  /// Text as it is.
  static func write(_ text: String) { try? descriptor.write(Array(text.utf8)) }
}

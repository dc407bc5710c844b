private import Glibc

/// Asking a person, whatever standard input and output are.
enum Terminal {
  /// Longer lines are cut: no passphrase is.
  private static let longestLine = 4096

  /// Asks for a line that is not shown; nil if there is no terminal, or nothing is entered.
  static func secret(_ prompt: String) -> [UInt8]? {
    let terminal = unsafe open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
    guard terminal >= 0 else { return nil }
    defer { close(terminal) }
    var before = termios()
    guard unsafe tcgetattr(terminal, &before) == 0 else { return nil }
    var silent = before
    silent.c_lflag &= ~tcflag_t(ECHO)
    guard unsafe tcsetattr(terminal, TCSAFLUSH, &silent) == 0 else { return nil }
    defer {
      _ = unsafe tcsetattr(terminal, TCSAFLUSH, &before)
      _ = unsafe write(terminal, "\n", 1)
    }
    let text = Array(prompt.utf8)
    guard unsafe write(terminal, text, text.count) == text.count else { return nil }
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while line.count < longestLine, unsafe read(terminal, &byte, 1) == 1, byte != 0x0A { line.append(byte) }
    return line.isEmpty ? nil : line
  }
}

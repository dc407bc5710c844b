import SyncStore
private import Glibc

/// The lines that a person types.
protocol TerminalLines: AnyObject {
  /// Shows the prompt and waits for a line.
  func next(_ prompt: Prompt) -> TypedLine
  /// Adds a line to those that the arrow keys bring back.
  func remember(_ line: [UInt8])
}

/// A line, or the reason why there is none.
enum TypedLine: Equatable {
  case text([UInt8])
  /// Ctrl-C: the line does not count.
  case interrupted
  /// Ctrl-D on an empty line, or the terminal is gone.
  case end
  /// A signal asked the program to end.
  case signal(Int32)
}

/// A prompt, with colours around its parts.
struct Prompt {
  struct Part {
    let text: String
    /// An escape sequence before it; nil for none.
    var colour: String?
  }

  /// The last one has no colour, and none is empty.
  let parts: [Part]

  /// The text for a terminal. `mark` is put around what takes no columns: once between two parts, since
  /// libedit wants a character after it.
  func text(mark: String = "") -> String {
    var (text, isColoured) = ("", false)
    for part in parts {
      let change = (isColoured ? "\u{1B}[0m" : "") + (part.colour.map { "\u{1B}[\($0)m" } ?? "")
      text += (change.isEmpty ? "" : mark + change + mark) + part.text
      isColoured = part.colour != nil
    }
    return text
  }
}

/// Lines of a terminal that can do nothing but print: the kernel edits them.
final class PlainLines: TerminalLines {
  private let inbox: SignalInbox
  /// Where the prompt goes; nil for none.
  private let output: Descriptor?
  private let input = Descriptor(standard: 0)
  private var buffer: [UInt8] = []
  private var isAtEnd = false

  init(_ inbox: SignalInbox, output: Int32?) {
    (self.inbox, self.output) = (inbox, output.map(Descriptor.init(standard:)))
  }

  func next(_ prompt: Prompt) -> TypedLine {
    show(prompt.text())
    while true {
      if let end = buffer.firstIndex(of: 0x0A) {
        defer { buffer.removeFirst(end + 1) }
        return .text(Array(buffer[..<end]))
      }
      if isAtEnd || buffer.count > ShellWords.mostBytes {
        guard !buffer.isEmpty else { return .end }
        defer { buffer = [] }
        return .text(buffer)
      }
      if let number = inbox.waitReadable(0) {
        switch number {
        case SIGINT:
          buffer = []
          show("\n")
          return .interrupted
        case SIGTERM, SIGHUP: return .signal(number)
        case SIGTSTP:
          System.takeDefaultAction(of: number)
          show(prompt.text())
        default: break
        }
        continue
      }
      let part = (try? input.read(1 << 16)) ?? []
      isAtEnd = part.isEmpty
      buffer += part
    }
  }

  func remember(_ line: [UInt8]) {}

  private func show(_ text: String) { try? output?.write(Array(text.utf8)) }
}

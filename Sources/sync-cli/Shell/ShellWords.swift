/// Splits the lines of a shell into words, and quotes words for them.
///
/// Blanks part words. '…' holds any characters but `'`. "…" has the escapes \n \r \t \a \b \" \\ \$ \` and
/// \xHH, so that a word can hold any bytes. Outside of quotes, \ makes the next character part of a word. `#`
/// at the beginning of a word begins a comment. A quote that is open at the end of a line continues on the
/// next; a \ there joins the two.
struct ShellWords {
  /// A quote that is open.
  enum Quote: UInt8 { case single = 0x27, double = 0x22 }

  private enum Escape: Equatable {
    /// After the \ outside of quotes, or in double quotes.
    case begun
    /// After \x and a first digit, if there was one.
    case hex(UInt8?)
  }

  /// The words so far.
  private(set) var words: [Argument] = []
  /// The quote that is open at the end of what was read.
  private(set) var quote: Quote?
  /// The word that the last character belongs to; nil after a blank.
  private(set) var current: [UInt8]?
  /// Where that word begins among the bytes read.
  private(set) var start = 0
  private var escape: Escape?
  private var isInComment = false
  /// The number of bytes read.
  private(set) var count = 0

  /// Maximum bytes of a command, with all its lines.
  static let mostBytes = 1 << 20
  private static let backslash = UInt8(ascii: "\\")
  private static let escapes: [(letter: UInt8, byte: UInt8)] = [
    (UInt8(ascii: "n"), 0x0A), (UInt8(ascii: "r"), 0x0D), (UInt8(ascii: "t"), 0x09),
    (UInt8(ascii: "a"), 0x07),
    (UInt8(ascii: "b"), 0x08), (UInt8(ascii: "\""), 0x22), (backslash, backslash), (UInt8(ascii: "$"), 0x24),
    (UInt8(ascii: "`"), 0x60),
  ]

  /// Reads a line without its end. True if the command is complete; otherwise the next line continues it.
  mutating func readLine(_ line: [UInt8]) throws(Failure) -> Bool {
    try read(line)
    guard escape != .begun else {
      // The \ and the line end vanish.
      escape = nil
      return false
    }
    if quote != nil {
      try read([0x0A])
      return false
    }
    endWord()
    isInComment = false
    return true
  }

  /// Reads a part of a line.
  mutating func read(_ bytes: [UInt8]) throws(Failure) {
    guard count + bytes.count <= Self.mostBytes else { throw Self.tooLong }
    for byte in bytes {
      count += 1
      if isInComment { continue }
      if let escape {
        try readEscaped(byte, escape)
      } else if let quote {
        readQuoted(byte, quote)
      } else {
        readPlain(byte)
      }
    }
  }

  /// The error for a command that is too long.
  static var tooLong: Failure {
    Failure(
      .usage,
      "the command has more than \(Text.size(mostBytes)): too long for a line: put the value into a file, and "
        + "use \"put --file F\""
    )
  }

  private mutating func readPlain(_ byte: UInt8) {
    switch byte {
    case 0x20, 0x09, 0x0A, 0x0D: endWord()
    case UInt8(ascii: "#") where current == nil: isInComment = true
    case Quote.single.rawValue, Quote.double.rawValue:
      beginWord()
      quote = Quote(rawValue: byte)
    case Self.backslash:
      beginWord()
      escape = .begun
    default:
      beginWord()
      current?.append(byte)
    }
  }

  private mutating func readQuoted(_ byte: UInt8, _ open: Quote) {
    if byte == open.rawValue {
      quote = nil
    } else if open == .double, byte == Self.backslash {
      escape = .begun
    } else {
      current?.append(byte)
    }
  }

  private mutating func readEscaped(_ byte: UInt8, _ begun: Escape) throws(Failure) {
    escape = nil
    switch begun {
    case .begun where quote == nil: current?.append(byte)
    case .begun where byte == UInt8(ascii: "x"): escape = .hex(nil)
    case .begun:
      guard let known = Self.escapes.first(where: { $0.letter == byte }) else {
        throw Failure(
          .usage,
          "\\\(Text.printable([byte])): there is no such escape in double quotes: write \\\\ for a backslash, "
            + "or use single quotes"
        )
      }
      current?.append(known.byte)
    case .hex(let first):
      guard let digit = Self.digit(byte) else {
        throw Failure(.usage, "\\x: two hexadecimal digits must follow: write \\\\x for the characters")
      }
      if let first { current?.append(first << 4 | digit) } else { escape = .hex(digit) }
    }
  }

  private mutating func beginWord() {
    guard current == nil else { return }
    (current, start) = ([], count - 1)
  }

  private mutating func endWord() {
    if let word = current { words.append(Argument(word)) }
    current = nil
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    default: nil
    }
  }

  // MARK: - Quoting

  /// Characters that need no quotes.
  private static let plain = Set(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789./_+-:@,=%^~".utf8)

  /// The word as it can be typed, on one line of printable UTF-8. With `isOpen` more can be typed after it.
  static func quoted(_ word: [UInt8], isOpen: Bool = false) -> [UInt8] {
    let text = String(validating: word, as: UTF8.self)
    let isPrintable = text.map { Text.printable(word) == $0 } ?? false
    if isPrintable, isOpen || !word.isEmpty, word.allSatisfy({ plain.contains($0) || $0 >= 0x80 }) {
      return word
    }
    let single = Quote.single.rawValue
    if isPrintable, !word.contains(single) { return [single] + word + (isOpen ? [] : [single]) }
    var quoted: [UInt8] = [Quote.double.rawValue]
    if let text {
      for scalar in text.unicodeScalars { quoted += escaped(Array(String(scalar).utf8)) }
    } else {
      for byte in word { quoted += escaped([byte]) }
    }
    return quoted + (isOpen ? [] : [Quote.double.rawValue])
  }

  /// A character, or a byte that is none, in double quotes.
  private static func escaped(_ bytes: [UInt8]) -> [UInt8] {
    if bytes.count == 1, let known = escapes.first(where: { $0.byte == bytes[0] }) {
      // Readers of the line need no escapes for these two.
      return bytes == [0x24] || bytes == [0x60] ? bytes : [backslash, known.letter]
    }
    guard String(validating: bytes, as: UTF8.self).map({ Text.printable(bytes) == $0 }) ?? false else {
      return bytes.flatMap { byte in
        Array("\\x".utf8) + (byte < 16 ? [UInt8(ascii: "0")] : []) + Array(String(byte, radix: 16).utf8)
      }
    }
    return bytes
  }
}

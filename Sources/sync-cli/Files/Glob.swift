/// A pattern for keys and paths.
///
/// `*` stands for any text without "/", `**` for any text, `?` for one character but "/", `[a-z]` for one of
/// a set, `[!a-z]` for one outside of it; `\` makes the next character literal. Characters are those of
/// UTF-8; a byte that is part of none counts as a character of its own.
struct Glob: Sendable {
  /// A Unicode scalar, or a byte that is not UTF-8, above all scalars.
  private typealias Unit = UInt32

  private enum Token {
    case one(Unit)
    case anyOne
    case set([ClosedRange<Unit>], isNegated: Bool)
    /// `*`, or `**` if it also matches "/".
    case anyText(crossing: Bool)
  }

  private let tokens: [Token]
  /// The bytes with which each match begins.
  let literalPrefix: [UInt8]
  private static let slash = Unit(UInt8(ascii: "/"))

  /// Parses a pattern.
  init(_ pattern: [UInt8]) throws(Reason) {
    var rest = Self.units(pattern)[...]
    var tokens: [Token] = []
    var prefix: [UInt8] = []
    while let unit = rest.popFirst() {
      switch Self.ascii(unit) {
      case "*":
        let isDouble = rest.first == Unit(UInt8(ascii: "*"))
        while rest.first == Unit(UInt8(ascii: "*")) { rest.removeFirst() }
        tokens.append(.anyText(crossing: isDouble))
      case "?": tokens.append(.anyOne)
      case "[": tokens.append(try Self.set(&rest))
      case "\\":
        guard let literal = rest.popFirst() else {
          throw Reason("it ends with a \\ that makes nothing literal")
        }
        tokens.append(.one(literal))
      default: tokens.append(.one(unit))
      }
      if case .one(let literal)? = tokens.last, tokens.allSatisfy(Self.isLiteral) {
        prefix += Self.bytes(of: literal)
      }
    }
    (self.tokens, literalPrefix) = (tokens, prefix)
  }

  private static func isLiteral(_ token: Token) -> Bool {
    if case .one = token { true } else { false }
  }

  /// The set whose "[" was just read. "]" as its first member and "-" at either end are members.
  private static func set(_ rest: inout ArraySlice<Unit>) throws(Reason) -> Token {
    var isNegated = false
    if let first = rest.first, ["!", "^"].contains(ascii(first)) {
      isNegated = true
      rest.removeFirst()
    }
    var ranges: [ClosedRange<Unit>] = []
    while var unit = rest.popFirst() {
      if ascii(unit) == "]", !ranges.isEmpty { return .set(ranges, isNegated: isNegated) }
      if ascii(unit) == "\\", let literal = rest.popFirst() { unit = literal }
      guard rest.count > 1, rest.first == Unit(UInt8(ascii: "-")), ascii(rest[rest.startIndex + 1]) != "]"
      else {
        ranges.append(unit...unit)
        continue
      }
      rest.removeFirst()
      var upper = rest.removeFirst()
      if ascii(upper) == "\\", let literal = rest.popFirst() { upper = literal }
      guard unit <= upper else { throw Reason("a range in [ ] runs backwards") }
      ranges.append(unit...upper)
    }
    throw Reason("a [ has no ]")
  }

  private static func ascii(_ unit: Unit) -> Character? {
    unit < 0x80 ? UnicodeScalar(unit).map(Character.init) : nil
  }

  // MARK: - Matching

  /// Whether all of `text` matches.
  ///
  /// After a mismatch only the last `*` and the last `**` are extended. Earlier ones need not be: a `*`
  /// cannot pass a "/", and for a `**` the first match of what follows leaves the most text to the rest.
  func matches(_ text: [UInt8]) -> Bool {
    let text = Self.units(text)
    var (place, token) = (0, 0)
    /// Where a `*` or `**` begins to match, and the token after it.
    var star: (place: Int, next: Int)?
    var doubleStar: (place: Int, next: Int)?
    while true {
      if token < tokens.count, case .anyText(let isCrossing) = tokens[token] {
        token += 1
        star = isCrossing ? nil : (place, token)
        if isCrossing { doubleStar = (place, token) }
        continue
      }
      if token == tokens.count, place == text.count { return true }
      if token < tokens.count, place < text.count, Self.matches(tokens[token], text[place]) {
        (place, token) = (place + 1, token + 1)
        continue
      }
      if let last = star, last.place < text.count, text[last.place] != Self.slash {
        star = (last.place + 1, last.next)
        (place, token) = (last.place + 1, last.next)
      } else if let last = doubleStar, last.place < text.count {
        doubleStar = (last.place + 1, last.next)
        (place, token, star) = (last.place + 1, last.next, nil)
      } else {
        return false
      }
    }
  }

  private static func matches(_ token: Token, _ unit: Unit) -> Bool {
    switch token {
    case .one(let literal): literal == unit
    case .anyOne: unit != slash
    case .set(let ranges, let isNegated): unit != slash && ranges.contains { $0.contains(unit) } != isNegated
    case .anyText: false
    }
  }

  private static let firstByteUnit: Unit = 0x11_0000

  private static func units(_ bytes: [UInt8]) -> [Unit] {
    if let text = String(validating: bytes, as: UTF8.self) { return text.unicodeScalars.map(\.value) }
    var units: [Unit] = []
    var rest = bytes[...]
    while let byte = rest.first {
      let length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4
      if let text = String(validating: rest.prefix(length), as: UTF8.self), text.unicodeScalars.count == 1 {
        units += text.unicodeScalars.map(\.value)
        rest = rest.dropFirst(length)
      } else {
        units.append(firstByteUnit + Unit(byte))
        rest = rest.dropFirst()
      }
    }
    return units
  }

  private static func bytes(of unit: Unit) -> [UInt8] {
    guard unit < firstByteUnit, let scalar = UnicodeScalar(unit) else {
      return [UInt8(truncatingIfNeeded: unit)]
    }
    return Array(String(scalar).utf8)
  }
}

extension Invocation {
  /// The pattern in an operand or option, which `what` names in the error.
  func glob(_ argument: Argument, of what: String) throws(Failure) -> Glob {
    do { return try Glob(argument.bytes) } catch {
      throw usage(
        "\(what) \(argument.shown)", reason: error.text, advice: "put \\ before a literal * ? [ or \\")
    }
  }
}

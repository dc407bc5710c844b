/// The reason and place of a JSON syntax error.
struct JSONFailure: Error, Equatable, CustomStringConvertible {
  let reason: String
  let place: TextPlace
  /// What to do about it.
  var advice = "correct the JSON there"

  var description: String { "\(place): \(reason)" }
}

/// Parses JSON (RFC 8259), strictly, except that `//` and `/* */` comments are allowed on request.
struct JSONParser {
  private let bytes: [UInt8]
  private var index = 0
  /// Offsets of each value, and of each name before its value, in the order of the text; nil to save time.
  private var offsets: [Int]?
  /// Mistakes that did not end the reading; nil if the first one does.
  private var mistakes: [JSONFailure]?
  /// The end of the text was reached where more was expected: later mistakes would only follow from it.
  private var isLost = false
  /// Whether the last string was not closed on its line. Parsing continues on the next line, and the comma
  /// that is missing there is not reported.
  private var isAfterOpenText = false
  private var depth = 0
  private let comments: Bool
  private let depthLimit: Int

  /// Maximum nesting: a hostile text could exhaust the stack otherwise.
  static let maximumDepth = 64

  /// Parses the single value in `bytes`.
  static func parse(
    _ bytes: [UInt8], comments: Bool = false, depth: Int = maximumDepth
  ) throws(JSONFailure) -> JSON {
    var parser = JSONParser(bytes: bytes, comments: comments, depthLimit: depth)
    let value = try parser.value()
    try parser.skipSpace()
    guard parser.index == bytes.count else { throw parser.failure("something follows the value") }
    return value
  }

  /// Parses `bytes`, with comments, as far as possible: collects mistakes, and keeps the place of each value.
  static func document(_ bytes: [UInt8]) -> JSONDocument {
    var parser = JSONParser(bytes: bytes, comments: true, depthLimit: maximumDepth)
    (parser.offsets, parser.mistakes) = ([], [])
    var root: JSON?
    do throws(JSONFailure) {
      root = try parser.value()
      try parser.skipSpace()
      if parser.index < bytes.count { try parser.report(parser.failure("something follows the value")) }
    } catch {
      if !parser.isLost { parser.mistakes?.append(error) }
    }
    var offsets = (parser.offsets ?? [])[...]
    return JSONDocument(
      root: root.map { LocatedJSON($0, offsets: &offsets) }, mistakes: parser.mistakes ?? [])
  }

  private init(bytes: [UInt8], comments: Bool, depthLimit: Int) {
    (self.bytes, self.comments, self.depthLimit) = (bytes, comments, depthLimit)
  }

  private func failure(_ reason: String, at offset: Int? = nil, advice: String? = nil) -> JSONFailure {
    var failure = JSONFailure(reason: reason, place: TextPlace(of: offset ?? index, in: bytes))
    if let advice { failure.advice = advice }
    return failure
  }

  /// Collects a mistake that need not end the reading; throws it if the first one does.
  private mutating func report(_ failure: JSONFailure) throws(JSONFailure) {
    guard let found = mistakes else { throw failure }
    // A second mistake at one place only follows from the first.
    if !isLost, failure.place != found.last?.place { mistakes?.append(failure) }
  }

  /// Reads one member or item. After a mistake in it, goes on before the next separator and returns nil.
  private mutating func recovering<Result>(
    _ body: (inout JSONParser) throws(JSONFailure) -> Result
  ) throws(JSONFailure) -> Result? {
    guard let count = offsets?.count, mistakes != nil else { return try body(&self) }
    let depth = depth
    do { return try body(&self) } catch {
      try report(error)
      self.depth = depth
      offsets?.removeSubrange(count...)
      isAfterOpenText = next == 0x0A || next == 0x0D
      if !isAfterOpenText { skipToSeparator() }
      return nil
    }
  }

  /// Skips to the next ',' or closing bracket that is not within brackets, texts or comments.
  private mutating func skipToSeparator() {
    var open = 0
    while let byte = next {
      switch byte {
      case UInt8(ascii: ",") where open == 0: return
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        if open == 0 { return }
        open -= 1
      case UInt8(ascii: "{"), UInt8(ascii: "["): open += 1
      case UInt8(ascii: "\""):
        // A text does not contain a line break: a missing quote costs one line.
        index += 1
        while let byte = next, byte != UInt8(ascii: "\""), byte != 0x0A {
          index += byte == UInt8(ascii: "\\") ? 2 : 1
        }
      case UInt8(ascii: "/"):
        if (try? skipComment()) != nil { continue }
      default: break
      }
      index += 1
    }
    isLost = true
  }

  private var next: UInt8? { index < bytes.count ? bytes[index] : nil }

  private mutating func skipSpace() throws(JSONFailure) {
    while let byte = next {
      switch byte {
      case 0x20, 0x09, 0x0A, 0x0D: index += 1
      case UInt8(ascii: "/") where comments: try skipComment()
      default: return
      }
    }
  }

  private mutating func skipComment() throws(JSONFailure) {
    let start = index
    let second = index + 1 < bytes.count ? bytes[index + 1] : 0
    switch second {
    case UInt8(ascii: "/"):
      while let byte = next, byte != 0x0A { index += 1 }
    case UInt8(ascii: "*"):
      index += 2
      while index + 1 < bytes.count,
        bytes[index] != UInt8(ascii: "*") || bytes[index + 1] != UInt8(ascii: "/")
      {
        index += 1
      }
      guard index + 1 < bytes.count else { throw failure("a comment has no end", at: start) }
      index += 2
    default: throw failure("'/' begins no comment")
    }
  }

  private mutating func value() throws(JSONFailure) -> JSON {
    try skipSpace()
    guard let byte = next else { throw failure("the text ends where a value should be") }
    offsets?.append(index)
    switch byte {
    case UInt8(ascii: "{"): return try nested { (parser) throws(JSONFailure) in try parser.object() }
    case UInt8(ascii: "["): return try nested { (parser) throws(JSONFailure) in try parser.array() }
    case UInt8(ascii: "\""): return .string(try string())
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try number()
    default:
      for (word, value) in [("true", JSON.bool(true)), ("false", .bool(false)), ("null", .null)]
      where bytes[index...].starts(with: word.utf8) {
        index += word.utf8.count
        return value
      }
      throw failure("no value begins with '\(Text.printable([byte]))'")
    }
  }

  private mutating func nested(
    _ body: (inout JSONParser) throws(JSONFailure) -> JSON
  ) throws(JSONFailure) -> JSON {
    depth += 1
    guard depth <= depthLimit else { throw failure("nested deeper than \(depthLimit)") }
    index += 1
    let value = try body(&self)
    depth -= 1
    return value
  }

  private mutating func object() throws(JSONFailure) -> JSON {
    var members: [JSON.Member] = []
    // Compared as bytes: canonically equivalent texts are distinct names.
    var names: Set<[UInt8]> = []
    try skipSpace()
    if next == UInt8(ascii: "}") {
      index += 1
      return .object([])
    }
    repeat {
      let member = try recovering { (parser) throws(JSONFailure) in try parser.member(&names) }
      if let member { members.append(member) }
    } while try continues(until: UInt8(ascii: "}"))
    return .object(members)
  }

  private mutating func member(_ names: inout Set<[UInt8]>) throws(JSONFailure) -> JSON.Member {
    try skipSpace()
    guard next == UInt8(ascii: "\"") else { throw failure("a member's name in quotes should be here") }
    let start = index
    offsets?.append(start)
    let name = try string()
    if !names.insert(Array(name.utf8)).inserted {
      try report(
        failure("\"\(Text.printable(name.utf8))\" is there twice", at: start, advice: "leave out one"))
    }
    try skipSpace()
    guard next == UInt8(ascii: ":") else {
      throw failure("':' should follow \"\(Text.printable(name.utf8))\"")
    }
    index += 1
    return JSON.Member(name: name, value: try value())
  }

  private mutating func array() throws(JSONFailure) -> JSON {
    var values: [JSON] = []
    try skipSpace()
    if next == UInt8(ascii: "]") {
      index += 1
      return .array([])
    }
    repeat {
      let value = try recovering { (parser) throws(JSONFailure) in try parser.value() }
      if let value { values.append(value) }
    } while try continues(until: UInt8(ascii: "]"))
    return .array(values)
  }

  /// Whether another member or item follows.
  private mutating func continues(until end: UInt8) throws(JSONFailure) -> Bool {
    let (previous, wasOpenText) = (index, isAfterOpenText)
    isAfterOpenText = false
    try skipSpace()
    let closing = Text.printable([end])
    guard let byte = next, byte == end || byte == UInt8(ascii: ",") else {
      // The comma is missing if a text follows; anything else is unclear.
      guard mistakes != nil, next == UInt8(ascii: "\"") else {
        throw failure("',' or '\(closing)' should be here")
      }
      if wasOpenText { return true }
      try report(failure("',' is missing", at: previous, advice: "put it in"))
      return true
    }
    let comma = index
    index += 1
    guard byte != end else { return false }
    try skipSpace()
    guard next == end else { return true }
    try report(failure("',' stands before '\(closing)'", at: comma, advice: "take it out"))
    index += 1
    return false
  }

  private mutating func number() throws(JSONFailure) -> JSON {
    let start = index
    if next == UInt8(ascii: "-") { index += 1 }
    let leadingZero = next == UInt8(ascii: "0")
    guard digits() > 0, !leadingZero || index == start + (bytes[start] == UInt8(ascii: "-") ? 2 : 1) else {
      throw failure("a number is malformed", at: start)
    }
    if next == UInt8(ascii: ".") {
      index += 1
      guard digits() > 0 else { throw failure("digits should follow '.'") }
    }
    if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
      index += 1
      if next == UInt8(ascii: "+") || next == UInt8(ascii: "-") { index += 1 }
      guard digits() > 0 else { throw failure("digits should follow 'e'") }
    }
    return .number(String(decoding: bytes[start..<index], as: UTF8.self))
  }

  private mutating func digits() -> Int {
    let start = index
    while let byte = next, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) { index += 1 }
    return index - start
  }

  private mutating func string() throws(JSONFailure) -> String {
    let start = index
    index += 1
    var text: [UInt8] = []
    while let byte = next {
      index += 1
      switch byte {
      case UInt8(ascii: "\""):
        guard let valid = String(validating: text, as: UTF8.self) else {
          throw failure("text is not UTF-8", at: start)
        }
        return valid
      case 0x0A, 0x0D:
        index -= 1
        throw failure("a text has no closing quote on its line", at: start)
      case 0..<0x20:
        index -= 1
        throw failure("a control character stands in a text: write it as \\uXXXX")
      case UInt8(ascii: "\\"): text += Array(try escape().utf8)
      default: text.append(byte)
      }
    }
    throw failure("a text has no closing quote", at: start)
  }

  private static let shortEscapes: [UInt8: Character] = [
    UInt8(ascii: "\""): "\"", UInt8(ascii: "\\"): "\\", UInt8(ascii: "/"): "/", UInt8(ascii: "b"): "\u{8}",
    UInt8(ascii: "f"): "\u{C}", UInt8(ascii: "n"): "\n", UInt8(ascii: "r"): "\r", UInt8(ascii: "t"): "\t",
  ]

  private mutating func escape() throws(JSONFailure) -> String {
    guard let byte = next else { throw failure("a text ends in '\\'") }
    index += 1
    if let short = Self.shortEscapes[byte] { return String(short) }
    guard byte == UInt8(ascii: "u") else { throw failure("'\\\(Text.printable([byte]))' means nothing") }
    let first = try codeUnit()
    var units = [first]
    if (0xD800..<0xDC00).contains(first), bytes[index...].starts(with: "\\u".utf8) {
      index += 2
      units.append(try codeUnit())
    }
    guard let text = String(validating: units, as: UTF16.self) else {
      throw failure("half of a surrogate pair stands alone")
    }
    return text
  }

  private mutating func codeUnit() throws(JSONFailure) -> UInt16 {
    let text = String(decoding: bytes[index..<min(index + 4, bytes.count)], as: UTF8.self)
    guard text.utf8.count == 4, text.allSatisfy(\.isHexDigit), let unit = UInt16(text, radix: 16) else {
      throw failure("four hex digits should follow '\\u'")
    }
    index += 4
    return unit
  }
}

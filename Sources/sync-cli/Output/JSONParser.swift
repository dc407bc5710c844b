/// The reason and place of a JSON syntax error.
struct JSONFailure: Error, Equatable, CustomStringConvertible {
  let reason: String
  let line: Int

  var description: String { "line \(line): \(reason)" }
}

/// Parses JSON (RFC 8259), strictly, except that `//` and `/* */` comments are allowed on request.
struct JSONParser {
  private let bytes: [UInt8]
  private var index = 0
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

  private init(bytes: [UInt8], comments: Bool, depthLimit: Int) {
    (self.bytes, self.comments, self.depthLimit) = (bytes, comments, depthLimit)
  }

  private func failure(_ reason: String) -> JSONFailure {
    JSONFailure(reason: reason, line: bytes[..<min(index, bytes.count)].count { $0 == 0x0A } + 1)
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
      guard index + 1 < bytes.count else { throw failure("a comment has no end") }
      index += 2
    default: throw failure("'/' begins no comment")
    }
  }

  private mutating func value() throws(JSONFailure) -> JSON {
    try skipSpace()
    guard let byte = next else { throw failure("the text ends where a value should be") }
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
    while true {
      try skipSpace()
      guard next == UInt8(ascii: "\"") else { throw failure("a member's name in quotes should be here") }
      let name = try string()
      guard names.insert(Array(name.utf8)).inserted else { throw failure("\"\(name)\" is there twice") }
      try skipSpace()
      guard next == UInt8(ascii: ":") else { throw failure("':' should follow \"\(name)\"") }
      index += 1
      members.append(JSON.Member(name: name, value: try value()))
      if try !continues(until: UInt8(ascii: "}")) { return .object(members) }
    }
  }

  private mutating func array() throws(JSONFailure) -> JSON {
    var values: [JSON] = []
    try skipSpace()
    if next == UInt8(ascii: "]") {
      index += 1
      return .array([])
    }
    while true {
      values.append(try value())
      if try !continues(until: UInt8(ascii: "]")) { return .array(values) }
    }
  }

  private mutating func continues(until end: UInt8) throws(JSONFailure) -> Bool {
    try skipSpace()
    guard let byte = next, byte == end || byte == UInt8(ascii: ",") else {
      throw failure("',' or '\(Text.printable([end]))' should be here")
    }
    index += 1
    return byte != end
  }

  private mutating func number() throws(JSONFailure) -> JSON {
    let start = index
    if next == UInt8(ascii: "-") { index += 1 }
    let leadingZero = next == UInt8(ascii: "0")
    guard digits() > 0, !leadingZero || index == start + (bytes[start] == UInt8(ascii: "-") ? 2 : 1) else {
      throw failure("a number is malformed")
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
    index += 1
    var text: [UInt8] = []
    while let byte = next {
      index += 1
      switch byte {
      case UInt8(ascii: "\""):
        guard let valid = String(validating: text, as: UTF8.self) else { throw failure("text is not UTF-8") }
        return valid
      case 0..<0x20: throw failure("a control character stands in a text: write it as \\uXXXX")
      case UInt8(ascii: "\\"): text += Array(try escape().utf8)
      default: text.append(byte)
      }
    }
    throw failure("a text has no closing quote")
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

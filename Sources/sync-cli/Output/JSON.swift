/// A JSON value (RFC 8259).
///
/// Numbers keep their text, so that a 64-bit integer or a double passes through unchanged; objects keep the
/// order of their members.
enum JSON: Equatable, Sendable {
  /// One name and its value.
  struct Member: Equatable, Sendable {
    let name: String
    let value: JSON
  }

  case null
  case bool(Bool)
  case number(String)
  case string(String)
  case array([JSON])
  case object([Member])

  /// A whole number.
  static func integer(_ value: some BinaryInteger) -> JSON { .number(String(value)) }

  /// A number; `null` for infinities and NaN, which JSON cannot represent.
  static func real(_ value: Double) -> JSON { value.isFinite ? .number("\(value)") : .null }

  /// The value of a member; nil if this is no object or has no such member.
  subscript(name: String) -> JSON? {
    guard case .object(let members) = self else { return nil }
    return members.first { $0.name == name }?.value
  }

  /// Whether no object has a name twice. `JSONParser` refuses those.
  var hasDistinctNames: Bool {
    switch self {
    case .array(let values): values.allSatisfy(\.hasDistinctNames)
    case .object(let members):
      Set(members.map { Array($0.name.utf8) }).count == members.count
        && members.allSatisfy { $0.value.hasDistinctNames }
    case .null, .bool, .number, .string: true
    }
  }

  /// The text of a string; nil for other values.
  var text: String? {
    guard case .string(let text) = self else { return nil }
    return text
  }
}

extension JSON: ExpressibleByStringLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral {
  init(stringLiteral text: String) { self = .string(text) }
  init(booleanLiteral value: Bool) { self = .bool(value) }
  init(integerLiteral value: Int) { self = .integer(value) }
}

extension JSON: ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral {
  init(dictionaryLiteral elements: (String, JSON)...) {
    self = .object(elements.map { Member(name: $0.0, value: $0.1) })
  }
  init(arrayLiteral elements: JSON...) { self = .array(elements) }

  /// The object with one more member at its end.
  func with(_ name: String, _ value: JSON?) -> JSON {
    guard case .object(let members) = self, let value else { return self }
    return .object(members + [Member(name: name, value: value)])
  }
}

// MARK: - Writing

extension JSON {
  /// The JSON text on one line.
  var encoded: [UInt8] {
    var output: [UInt8] = []
    encode(into: &output)
    return output
  }

  /// The JSON text with a line for each member and item, but lists of plain values on one line.
  func indented(by columns: Int = 0) -> String {
    let (outer, inner) = (String(repeating: " ", count: columns), String(repeating: " ", count: columns + 2))
    switch self {
    case .object(let members) where !members.isEmpty:
      let lines = members.map { member in
        inner + String(decoding: JSON.string(member.name).encoded, as: UTF8.self) + ": "
          + member.value.indented(by: columns + 2)
      }
      return "{\n" + lines.joined(separator: ",\n") + "\n\(outer)}"
    case .array(let items) where items.contains(where: \.isNested):
      return "[\n" + items.map { inner + $0.indented(by: columns + 2) }.joined(separator: ",\n")
        + "\n\(outer)]"
    case .array(let items): return "[" + items.map { $0.indented() }.joined(separator: ", ") + "]"
    default: return String(decoding: encoded, as: UTF8.self)
    }
  }

  private var isNested: Bool {
    switch self {
    case .array, .object: true
    default: false
    }
  }

  private func encode(into output: inout [UInt8]) {
    switch self {
    case .null: output += Array("null".utf8)
    case .bool(let value): output += Array((value ? "true" : "false").utf8)
    case .number(let text): output += Array(text.utf8)
    case .string(let text): Self.encode(text, into: &output)
    case .array(let values):
      output.append(UInt8(ascii: "["))
      for (index, value) in values.enumerated() {
        if index > 0 { output.append(UInt8(ascii: ",")) }
        value.encode(into: &output)
      }
      output.append(UInt8(ascii: "]"))
    case .object(let members):
      output.append(UInt8(ascii: "{"))
      for (index, member) in members.enumerated() {
        if index > 0 { output.append(UInt8(ascii: ",")) }
        Self.encode(member.name, into: &output)
        output.append(UInt8(ascii: ":"))
        member.value.encode(into: &output)
      }
      output.append(UInt8(ascii: "}"))
    }
  }

  private static func encode(_ text: String, into output: inout [UInt8]) {
    output.append(UInt8(ascii: "\""))
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"): output += [UInt8(ascii: "\\"), byte]
      case 0x0A: output += Array("\\n".utf8)
      case 0x0D: output += Array("\\r".utf8)
      case 0x09: output += Array("\\t".utf8)
      case 0..<0x20, 0x7F:
        output += Array("\\u00".utf8)
        output += [hexDigit(byte >> 4), hexDigit(byte & 15)]
      default: output.append(byte)
      }
    }
    output.append(UInt8(ascii: "\""))
  }

  private static func hexDigit(_ nibble: UInt8) -> UInt8 {
    nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") + nibble - 10
  }
}

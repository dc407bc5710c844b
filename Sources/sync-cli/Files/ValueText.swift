import SyncStore

/// Typed values as text and as JSON. The bytes are those of `schemas/values.md`.
enum ValueText {
  /// The bytes of a value of that type from a command-line argument; nil if it is invalid.
  static func bytes(of argument: [UInt8], as type: ValueType) -> [UInt8]? {
    let text = String(decoding: argument, as: UTF8.self)
    switch type {
    case .bool: return text == "true" ? [1] : text == "false" ? [0] : nil
    case .int: return Int64(text).map { littleEndian(UInt64(bitPattern: $0)) }
    case .uint: return UInt64(text).map { littleEndian($0) }
    case .double: return Double(text).map { littleEndian($0.bitPattern) }
    case .date: return CodedText.bytes(ofInstant: text) ?? Double(text).map { littleEndian($0.bitPattern) }
    case .float: return Float(text).map { Array(littleEndian(UInt64($0.bitPattern)).prefix(4)) }
    case .uuid: return CodedText.bytes(ofUUID: text)
    case .cbor: return (try? JSONParser.parse(argument)).flatMap { try? CodedText.coded($0) }
    case .string: return String(validating: argument, as: UTF8.self) == nil ? nil : argument
    case .json: return (try? JSONParser.parse(argument)) == nil ? nil : argument
    default: return argument
    }
  }

  /// The expected form of a value of that type on the command line.
  static func expectation(_ type: ValueType) -> String {
    switch type {
    case .bool: "write true or false"
    case .int: "write a whole number of 64 bits"
    case .uint: "write a whole number of 64 bits without a sign"
    case .double, .float: "write a number"
    case .uuid: "write 32 hex digits with hyphens after the 8th, 12th, 16th and 20th"
    case .cbor: "write valid JSON, which is coded; {\"$date\":1.5} and the like need a value of their kind"
    case .date: "write seconds since 1970"
    case .json: "write valid JSON"
    default: "write UTF-8 text"
    }
  }

  /// The members that hold a value in a line of JSON: `value` where JSON can represent it exactly, otherwise
  /// `base64`; `type`.
  static func members(_ bytes: [UInt8], _ type: ValueType) -> [JSON.Member] {
    let value =
      exact(bytes, type).map { JSON.Member(name: "value", value: $0) }
      ?? JSON.Member(name: "base64", value: .string(Base64.encode(bytes)))
    let members = [value, JSON.Member(name: "type", value: .string(type.description))]
    guard value.name == "base64", let shown = shown(bytes, type), shown.hasDistinctNames else {
      return members
    }
    return members + [JSON.Member(name: "shown", value: shown)]
  }

  /// A readable form of a value whose bytes say nothing to people; nil if there is none.
  static func shown(_ bytes: [UInt8], _ type: ValueType) -> JSON? {
    switch type {
    case .cbor: CodedText.shown(bytes)
    case .bytes, .string, .json: nil
    default: exact(bytes, type)
    }
  }

  /// A value as text, for people and `get --text`. Bytes that are neither of their type nor UTF-8 are written
  /// as `\xNN`.
  static func text(_ bytes: [UInt8], _ type: ValueType) -> [UInt8] {
    switch shown(bytes, type) {
    case .string(let text)?: return Array(text.utf8)
    case let json?: return json.encoded
    case nil: break
    }
    switch type {
    // JSON has no infinities and no NaN.
    case .double where bytes.count == 8, .date where bytes.count == 8:
      return Array("\(Double(bitPattern: integer(bytes)))".utf8)
    case .float where bytes.count == 4:
      return Array("\(Float(bitPattern: UInt32(integer(bytes))))".utf8)
    default:
      return String(validating: bytes, as: UTF8.self) == nil ? Array(Text.printable(bytes).utf8) : bytes
    }
  }

  /// A value of a type with a form of its own as text that `bytes` restores exactly; nil if there is none.
  static func exactText(_ bytes: [UInt8], _ type: ValueType) -> [UInt8]? {
    let text = type == .cbor ? CodedText.marked(bytes)?.encoded : text(bytes, type)
    return text.flatMap { Self.bytes(of: $0, as: type) == bytes ? $0 : nil }
  }

  /// Whether the bytes can be a value of that type: of those with a form of their own, only such bytes are.
  static func isEncoding(_ bytes: [UInt8], of type: ValueType) -> Bool {
    switch type {
    // Infinities and NaN have no form in JSON.
    case .double, .date: bytes.count == 8 || shown(bytes, type) != nil
    case .float: bytes.count == 4
    case .bool, .int, .uint, .uuid, .cbor: shown(bytes, type) != nil
    default: true
    }
  }

  private static func exact(_ bytes: [UInt8], _ type: ValueType) -> JSON? {
    switch type {
    case .bool where bytes.count == 1 && bytes[0] < 2: return .bool(bytes[0] == 1)
    case .int where bytes.count == 8: return .integer(Int64(bitPattern: integer(bytes)))
    case .uint where bytes.count == 8: return .integer(integer(bytes))
    case .double where bytes.count == 8:
      let value = Double(bitPattern: integer(bytes))
      return value.isFinite ? .number("\(value)") : nil
    case .date where bytes.count == 8: return date(Double(bitPattern: integer(bytes)))
    case .float where bytes.count == 4:
      let value = Float(bitPattern: UInt32(integer(bytes)))
      return value.isFinite ? .number("\(value)") : nil
    case .date, .uuid:
      switch EncodedValue(bytes: bytes, type: type).item {
      case .instant(let seconds, let nanoseconds)?: return .number(CodedText.instant(seconds, nanoseconds))
      case .uuid(let high, let low)?: return .string(CodedText.uuid(high, low))
      default: return nil
      }
    case .cbor: return CodedText.exact(bytes)
    case .bool, .int, .uint, .double, .float: return nil
    default: return String(validating: bytes, as: UTF8.self).map { .string($0) }
    }
  }

  /// A date that a double represents exactly; nil for infinities and NaN.
  static func date(_ seconds: Double) -> JSON? {
    guard seconds.isFinite else { return nil }
    // Nine decimals would be parsed as the longer form of a date.
    return .number("\(seconds)" + (CodedText.bytes(ofInstant: "\(seconds)") != nil ? "0" : ""))
  }

  /// Parses what `members` produces. Throws a text that explains the error.
  static func value(of line: JSON) throws(Reason) -> (bytes: [UInt8], type: ValueType) {
    let name: String
    switch line["type"] {
    case nil: name = "bytes"
    case .string(let text)?: name = text
    case .some: throw Reason("\"type\" is no text")
    }
    guard let type = ValueType(name: name) ?? unknownType(name) else {
      throw Reason("\"\(name)\" is no type of value")
    }
    if let encoded = line["base64"] {
      guard line["value"] == nil else { throw Reason("\"value\" and \"base64\" are both there") }
      guard let text = encoded.text, let bytes = Base64.decode(text) else {
        throw Reason("\"base64\" does not hold base 64")
      }
      return (bytes, type)
    }
    let bytes: [UInt8]? =
      switch (line["value"], type) {
      case (nil, _): throw Reason("neither \"value\" nor \"base64\" is there")
      case (.bool(let value), .bool): [value ? 1 : 0]
      case (.number(let text), .int), (.number(let text), .double), (.number(let text), .date),
        (.number(let text), .uint), (.number(let text), .float), (.string(let text), .uuid):
        Self.bytes(of: Array(text.utf8), as: type)
      case (let value?, .cbor): try CodedText.coded(value)
      case (_, .bool), (_, .int), (_, .double), (_, .date), (_, .uint), (_, .float), (_, .uuid): nil
      case (.string(let text), _): Array(text.utf8)
      default: nil
      }
    guard let bytes else { throw Reason("\"value\" is not of type \(type)") }
    return (bytes, type)
  }

  /// A type of a newer version is kept and passed on (F103).
  private static func unknownType(_ name: String) -> ValueType? {
    guard name.hasPrefix("type-"), let number = UInt8(name.dropFirst(5)) else { return nil }
    return ValueType(rawValue: number)
  }

  private static func littleEndian(_ value: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
  }

  private static func integer(_ bytes: [UInt8]) -> UInt64 {
    bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }
}

/// The reason why input is invalid, without its place, which the caller knows.
struct Reason: Error {
  let text: String
  init(_ text: String) { self.text = text }
}

/// Reads an XML property list: its few elements, entities, comments and CDATA. Definitions of a document type
/// are ignored.
struct XMLPropertyList {
  private let bytes: [UInt8]
  private var index = 0
  private var visited = 0
  /// Number of values whose key occurs again in the same dictionary.
  private(set) var merged = 0

  /// - Throws: if the encoding of the bytes is unsupported, or they do not match it.
  init(_ bytes: [UInt8]) throws(DecodingFailure) { self.bytes = try XMLEncoding.utf8(bytes) }

  mutating func root() throws(DecodingFailure) -> PropertyList {
    guard case .open("plist") = try tag() else { throw DecodingFailure("it has no element <plist>") }
    let value = try value(try tag(), depth: 0)
    guard case .close("plist") = try tag() else { throw DecodingFailure("<plist> does not end") }
    return value
  }

  private enum Tag: Equatable {
    case open(String)
    case close(String)
    case empty(String)
  }

  private mutating func value(_ tag: Tag, depth: Int) throws(DecodingFailure) -> PropertyList {
    visited += 1
    guard depth < PropertyList.depth, visited <= PropertyList.valueLimit else {
      throw DecodingFailure("its values lie too deep")
    }
    switch tag {
    case .empty("true"): return .bool(true)
    case .empty("false"): return .bool(false)
    case .empty("string"): return .string("")
    case .empty("data"): return .data([])
    case .empty("array"): return .array([])
    case .empty("dict"): return .dictionary([:])
    case .open("true"), .open("false"):
      let isTrue = tag == .open("true")
      _ = try text(until: isTrue ? "true" : "false")
      return .bool(isTrue)
    case .open("string"): return .string(try text(until: "string"))
    case .open("integer"): return try Self.integer(try text(until: "integer"))
    case .open("real"):
      guard let number = Double(Self.trimmed(try text(until: "real"))) else {
        throw DecodingFailure("a <real> is none")
      }
      return .real(number)
    case .open("date"):
      guard let date = Self.date(Self.trimmed(try text(until: "date"))) else {
        throw DecodingFailure("a <date> is none")
      }
      return .date(date)
    case .open("data"):
      guard let data = Base64Text.decode(try text(until: "data").utf8) else {
        throw DecodingFailure("<data> is no base 64")
      }
      return .data(data)
    case .open("array"):
      var values: [PropertyList] = []
      while true {
        let next = try self.tag()
        if next == .close("array") { return .array(values) }
        values.append(try value(next, depth: depth + 1))
      }
    case .open("dict"):
      var entries: StringDictionary<PropertyList> = [:]
      while true {
        let next = try self.tag()
        if next == .close("dict") { return .dictionary(entries) }
        var key = ""
        switch next {
        case .open("key"): key = try text(until: "key")
        case .empty("key"): break
        default: throw DecodingFailure("a value in a <dict> has no <key>")
        }
        if entries[key] != nil { merged += 1 }
        entries[key] = try value(try self.tag(), depth: depth + 1)
      }
    default: throw DecodingFailure("it has an element that no property list has: \(tag)")
    }
  }

  // MARK: Tokens

  /// The next tag, skipping blanks, comments, declarations and instructions before it.
  private mutating func tag() throws(DecodingFailure) -> Tag {
    while true {
      while index < bytes.count, Self.isBlank(bytes[index]) { index += 1 }
      guard index < bytes.count, bytes[index] == UInt8(ascii: "<") else {
        throw DecodingFailure("text stands where none can")
      }
      if starts("<!--") {
        try skip(past: "-->")
      } else if starts("<?") {
        try skip(past: "?>")
      } else if starts("<!DOCTYPE") {
        try skipDocumentType()
      } else {
        return try element()
      }
    }
  }

  private mutating func element() throws(DecodingFailure) -> Tag {
    let start = index + 1
    try skip(past: ">")
    var name = bytes[start..<(index - 1)]
    if name.first == UInt8(ascii: "/") {
      return .close(Self.trimmed(String(decoding: name.dropFirst(), as: UTF8.self)))
    }
    let isEmpty = name.last == UInt8(ascii: "/")
    if isEmpty { name = name.dropLast() }
    // Attributes have no meaning here.
    let word = String(decoding: name.prefix { !Self.isBlank($0) }, as: UTF8.self)
    return isEmpty ? .empty(word) : .open(word)
  }

  /// The text up to the end of the element.
  private mutating func text(until name: String) throws(DecodingFailure) -> String {
    var text: [UInt8] = []
    while index < bytes.count {
      if starts("<![CDATA[") {
        let start = index + 9
        index = start
        try skip(past: "]]>")
        text += bytes[start..<(index - 3)]
      } else if starts("<!--") {
        try skip(past: "-->")
      } else if bytes[index] == UInt8(ascii: "<") {
        guard case .close(name) = try element() else { throw DecodingFailure("<\(name)> holds an element") }
        return String(decoding: text, as: UTF8.self)
      } else if bytes[index] == UInt8(ascii: "&") {
        text += try entity()
      } else {
        text.append(bytes[index])
        index += 1
      }
    }
    throw DecodingFailure("<\(name)> does not end")
  }

  private mutating func entity() throws(DecodingFailure) -> [UInt8] {
    let start = index + 1
    try skip(past: ";")
    return try XMLEntity.bytes(named: String(decoding: bytes[start..<(index - 1)].prefix(12), as: UTF8.self))
  }

  private func starts(_ text: String) -> Bool { bytes[index...].starts(with: text.utf8) }

  private mutating func skip(past end: String) throws(DecodingFailure) {
    let end = Array(end.utf8)
    while index + end.count <= bytes.count {
      if bytes[index] == end[0], bytes[index...].starts(with: end) {
        index += end.count
        return
      }
      index += 1
    }
    throw DecodingFailure("it ends too early")
  }

  /// Skips a document type, with or without definitions in brackets.
  private mutating func skipDocumentType() throws(DecodingFailure) {
    while index < bytes.count, bytes[index] != UInt8(ascii: ">"), bytes[index] != UInt8(ascii: "[") {
      index += 1
    }
    try skip(past: index < bytes.count && bytes[index] == UInt8(ascii: "[") ? "]" : ">")
    if bytes[index - 1] == UInt8(ascii: "]") { try skip(past: ">") }
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0D).contains(byte) }

  private static func trimmed(_ text: String) -> String {
    String(decoding: text.utf8.drop { isBlank($0) }.reversed().drop { isBlank($0) }.reversed(), as: UTF8.self)
  }

  // MARK: Scalars

  private static func integer(_ text: String) throws(DecodingFailure) -> PropertyList {
    let text = trimmed(text)
    let digits = text.drop { $0 == "-" || $0 == "+" }
    let isHex = digits.hasPrefix("0x") || digits.hasPrefix("0X")
    let magnitude = isHex ? UInt64(digits.dropFirst(2), radix: 16) : UInt64(digits)
    guard let magnitude, text.count - digits.count <= 1 else { throw DecodingFailure("an <integer> is none") }
    guard text.hasPrefix("-") else { return PropertyList(whole: magnitude) }
    guard magnitude <= UInt64(Int64.max) + 1 else { throw DecodingFailure("an <integer> is out of bounds") }
    return .integer(Int64(bitPattern: 0 &- magnitude))
  }

  /// Seconds since 1970 of `YYYY-MM-DDThh:mm:ssZ`.
  private static func date(_ text: String) -> Double? {
    let parts = text.split { !$0.isNumber }.compactMap { Int($0) }
    guard text.hasSuffix("Z"), parts.count == 6, (1...12).contains(parts[1]), (1...31).contains(parts[2]),
      parts[3] < 24, parts[4] < 60, parts[5] <= 60, parts[0] < 100_000
    else { return nil }
    // Days since 1970 of the proleptic Gregorian calendar, with years that begin in March.
    let year = parts[1] > 2 ? parts[0] : parts[0] - 1
    let era = (year >= 0 ? year : year - 399) / 400
    let yearOfEra = year - era * 400
    let dayOfYear = (153 * (parts[1] + (parts[1] > 2 ? -3 : 9)) + 2) / 5 + parts[2] - 1
    let days = era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    return Double(days * 86_400 + parts[3] * 3600 + parts[4] * 60 + parts[5])
  }
}

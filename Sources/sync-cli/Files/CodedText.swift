import SyncStore

/// Converts coded values to and from JSON. A value that JSON cannot represent exactly is shown approximately
/// and kept as bytes; `CodedMark` has an exact notation for it.
enum CodedText {
  /// A readable form of a coded value; nil if the bytes are none.
  static func shown(_ bytes: [UInt8]) -> JSON? { (try? CodedItem(decoding: bytes)).map { json($0) } }

  /// The exact JSON form, from which `coded` restores the same bytes; nil if there is none.
  static func exact(_ bytes: [UInt8]) -> JSON? {
    guard let json = shown(bytes), json.hasDistinctNames, let again = try? item(json), again.bytes == bytes
    else { return nil }
    return json
  }

  /// The exact form with the marks of `CodedMark`, from which `coded` restores the same bytes; nil if there
  /// is none.
  static func marked(_ bytes: [UInt8]) -> JSON? {
    guard let json = (try? CodedItem(decoding: bytes)).map({ json($0, marked: true) }), json.hasDistinctNames,
      let again = try? item(json), again.bytes == bytes
    else { return nil }
    return json
  }

  /// The bytes of the coded value for a JSON value, which may hold the marks of `CodedMark`.
  static func coded(_ json: JSON) throws(Reason) -> [UInt8] { try item(json).bytes }

  private static func json(_ item: CodedItem, marked: Bool = false) -> JSON {
    if marked, let notation = CodedMark.notation(of: item) { return notation.json }
    return switch item {
    case .null: .null
    case .bool(let value): .bool(value)
    case .unsigned(let value): .integer(value)
    case .negative(let value): value == .max ? .number("-18446744073709551616") : .number("-\(value + 1)")
    case .float(let value): value.isFinite ? .number("\(value)") : .null
    case .double(let value): .real(value)
    case .text(let value): .string(value)
    case .bytes(let value): .string(Base64.encode(value))
    case .array(let items): .array(items.map { json($0, marked: marked) })
    case .object(let entries):
      .object(entries.map { JSON.Member(name: name($0.key), value: json($0.value, marked: marked)) })
    case .item(.time(let seconds)): .real(seconds)
    case .item(.instant(let seconds, let nanoseconds)): .number(instant(seconds, nanoseconds))
    case .item(.uuid(let high, let low)): .string(uuid(high, low))
    case .item(.bytes(let value)): .string(Base64.encode(value))
    case .other(let noun): .string(noun)
    }
  }

  private static func name(_ key: CodedItem) -> String {
    if case .text(let name) = key { return name }
    return String(decoding: json(key).encoded, as: UTF8.self)
  }

  private static func item(_ json: JSON) throws(Reason) -> CodedItem {
    switch json {
    case .null: return .null
    case .bool(let value): return .bool(value)
    case .string(let text): return .text(text)
    case .number(let text): return try number(text)
    case .array(let values):
      var items: [CodedItem] = []
      for value in values { items.append(try item(value)) }
      return .array(items)
    case .object(let members):
      if let item = try CodedMark.item(of: members) { return item }
      var entries: [(key: CodedItem, value: CodedItem)] = []
      for member in members { entries.append((.text(member.name), try item(member.value))) }
      return .object(entries)
    }
  }

  /// Integers without a fraction, doubles otherwise.
  private static func number(_ text: String) throws(Reason) -> CodedItem {
    if !text.contains(where: { ".eE".contains($0) }) {
      if let value = UInt64(text) { return .unsigned(value) }
      if text == "-18446744073709551616" { return .negative(.max) }
      if text.hasPrefix("-"), let magnitude = UInt64(text.dropFirst()), magnitude > 0 {
        return .negative(magnitude - 1)
      }
      throw Reason("\(text) is beyond the integers of 64 bits")
    }
    guard let value = Double(text), value.isFinite else {
      throw Reason("\(text) is beyond the numbers of 64 bits")
    }
    return .double(value)
  }

  // MARK: Times and UUIDs

  /// Seconds since 1970 with nine decimals; doubles are never formatted like that.
  static func instant(_ seconds: Int64, _ nanoseconds: UInt32) -> String {
    // Below zero the fraction counts down from the next whole second.
    let isNegative = seconds < 0
    let whole = isNegative && nanoseconds > 0 ? seconds + 1 : seconds
    let part = isNegative && nanoseconds > 0 ? 1_000_000_000 - nanoseconds : nanoseconds
    let digits = String(part)
    return (isNegative ? "-" : "") + "\(whole.magnitude)." + String(repeating: "0", count: 9 - digits.count)
      + digits
  }

  /// The bytes of a date in the form of `instant`; nil if it is none.
  static func bytes(ofInstant text: String) -> [UInt8]? {
    let parts = text.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 2, parts[1].utf8.count == 9, let part = UInt32(parts[1]),
      var seconds = Int64(parts[0])
    else { return nil }
    var nanoseconds = part
    if text.hasPrefix("-"), part > 0 {
      guard seconds > .min else { return nil }
      (seconds, nanoseconds) = (seconds - 1, 1_000_000_000 - part)
    }
    let bits = UInt64(bitPattern: seconds)
    return (0..<8).map { UInt8(truncatingIfNeeded: bits >> UInt64(8 * $0)) }
      + (0..<4).map { UInt8(truncatingIfNeeded: nanoseconds >> UInt32(8 * $0)) }
  }

  /// The 36 characters of a UUID.
  static func uuid(_ high: UInt64, _ low: UInt64) -> String {
    let digits = [high, low].map { word in
      let text = String(word, radix: 16)
      return String(repeating: "0", count: 16 - text.count) + text
    }.joined()
    var text = ""
    for (index, digit) in digits.enumerated() {
      if [8, 12, 16, 20].contains(index) { text.append("-") }
      text.append(digit)
    }
    return text
  }

  /// The 16 bytes of a UUID's 36 characters; nil if invalid.
  static func bytes(ofUUID text: String) -> [UInt8]? {
    let parts = text.lowercased().split(separator: "-", omittingEmptySubsequences: false)
    guard parts.map(\.utf8.count) == [8, 4, 4, 4, 12] else { return nil }
    var bytes: [UInt8] = []
    var digits = parts.joined()[...]
    while let high = digits.popFirst()?.hexDigitValue {
      guard let low = digits.popFirst()?.hexDigitValue else { return nil }
      bytes.append(UInt8(high << 4 | low))
    }
    return bytes.count == 16 ? bytes : nil
  }
}

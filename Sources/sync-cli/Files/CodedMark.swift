import SyncStore

/// An item of a coded value that JSON lacks, as an object with one member whose name begins with a dollar
/// sign: `{"$uuid":"…"}`.
enum CodedMark: String, CaseIterable {
  /// A text of base 64.
  case bytes = "$bytes"
  /// Seconds since 1970.
  case date = "$date"
  /// The 36 characters.
  case uuid = "$uuid"
  /// A number of 32 bits.
  case float = "$float"
  /// A number of 64 bits that JSON lacks: "inf", "-inf" or "nan".
  case double = "$double"
}

extension CodedMark {
  /// A mark with its value.
  struct Marked {
    let mark: CodedMark
    let value: JSON

    var json: JSON { .object([.init(name: mark.rawValue, value: value)]) }
  }

  /// The notation of an item; nil for items that JSON has.
  static func notation(of item: CodedItem) -> Marked? {
    switch item {
    case .bytes(let bytes), .item(.bytes(let bytes)):
      Marked(mark: .bytes, value: .string(Base64.encode(bytes)))
    case .item(.time(let seconds)):
      Marked(mark: .date, value: ValueText.date(seconds) ?? .string("\(seconds)"))
    case .item(.instant(let seconds, let nanoseconds)):
      Marked(mark: .date, value: .number(CodedText.instant(seconds, nanoseconds)))
    case .item(.uuid(let high, let low)): Marked(mark: .uuid, value: .string(CodedText.uuid(high, low)))
    case .float(let value):
      Marked(mark: .float, value: value.isFinite ? .number("\(value)") : .string("\(value)"))
    case .double(let value) where !value.isFinite: Marked(mark: .double, value: .string("\(value)"))
    default: nil
    }
  }

  /// The item of an object with a mark; nil for other objects.
  static func item(of members: [JSON.Member]) throws(Reason) -> CodedItem? {
    guard members.count == 1, let mark = CodedMark(rawValue: members[0].name) else { return nil }
    guard let item = mark.item(of: members[0].value) else {
      throw Reason("\"\(mark.rawValue)\" has no value of its kind")
    }
    return item
  }

  private func item(of value: JSON) -> CodedItem? {
    switch (self, value) {
    case (.bytes, .string(let text)): Base64.decode(text).map { .bytes($0) }
    case (.uuid, .string(let text)): Self.item(CodedText.bytes(ofUUID: text), .uuid)
    case (.date, .number(let text)), (.date, .string(let text)):
      Self.item(ValueText.bytes(of: Array(text.utf8), as: .date), .date)
    case (.float, .number(let text)), (.float, .string(let text)): Float(text).map { .float($0) }
    case (.double, .number(let text)), (.double, .string(let text)): Double(text).map { .double($0) }
    default: nil
    }
  }

  private static func item(_ bytes: [UInt8]?, _ type: ValueType) -> CodedItem? {
    bytes.flatMap { EncodedValue(bytes: $0, type: type).item }.map { .item($0) }
  }
}

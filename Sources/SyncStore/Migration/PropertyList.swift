/// The content of a property list.
package indirect enum PropertyList: Equatable, Sendable {
  case string(String)
  case integer(Int64)
  /// An integer above those of `integer`.
  case unsigned(UInt64)
  case real(Double)
  case bool(Bool)
  /// Seconds since 1970.
  case date(Double)
  case data([UInt8])
  case array([PropertyList])
  case dictionary(StringDictionary<PropertyList>)

  /// Bytes of the largest file accepted.
  static let limit = 256 << 20
  /// Greatest nesting depth.
  static let depth = 64
  /// Greatest number of values visited: a binary list may refer to one from many places.
  static let valueLimit = 1 << 22
  /// The beginning of 2001, the epoch of property lists, in seconds since 1970.
  static let epoch = 978_307_200.0

  /// A non-negative integer.
  init(whole number: UInt64) { self = Int64(exactly: number).map { .integer($0) } ?? .unsigned(number) }

  /// Reads an XML or a binary property list.
  package static func read(_ bytes: [UInt8], path: String) throws(StoreError) -> PropertyList {
    try readCounting(bytes, path: path).list
  }

  /// Also returns the number of values whose key occurs again in the same dictionary: the later one counts.
  static func readCounting(
    _ bytes: [UInt8], path: String
  ) throws(StoreError) -> (list: PropertyList, merged: Int) {
    do throws(DecodingFailure) {
      if bytes.starts(with: BinaryPropertyList.magic) {
        var reader = try BinaryPropertyList(bytes)
        return (try reader.root(), reader.merged)
      }
      var reader = try XMLPropertyList(bytes)
      return (try reader.root(), reader.merged)
    } catch {
      throw StoreError(.foreignFile, "is no property list that can be read: \(error.description)", path: path)
    }
  }

  /// The stored form; `schemas/values.md` has the layouts.
  var encoded: (bytes: [UInt8], type: ValueType) {
    switch self {
    case .string(let text): (Array(text.utf8), .string)
    case .integer(let number): (Self.littleEndian(UInt64(bitPattern: number)), .int)
    case .unsigned(let number): (Self.littleEndian(number), .uint)
    case .real(let number): (Self.littleEndian(number.bitPattern), .double)
    case .bool(let value): ([value ? 1 : 0], .bool)
    case .date(let seconds): (Self.littleEndian(seconds.bitPattern), .date)
    case .data(let bytes): (bytes, .bytes)
    case .array, .dictionary: (Array(json.utf8), .json)
    }
  }

  private static func littleEndian(_ word: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64($0 * 8)) }
  }

  private var json: String {
    switch self {
    case .string(let text): Self.quoted(text)
    case .integer(let number): String(number)
    case .unsigned(let number): String(number)
    case .real(let number), .date(let number): number.isFinite ? "\(number)" : "null"
    case .bool(let value): value ? "true" : "false"
    case .data(let bytes): "\"" + Base64Text.encode(bytes) + "\""
    case .array(let values): "[" + values.map(\.json).joined(separator: ",") + "]"
    case .dictionary(let entries):
      "{"
        + entries.sorted { $0.key < $1.key }.map { Self.quoted($0.key) + ":" + $0.value.json }
        .joined(separator: ",") + "}"
    }
  }

  private static func quoted(_ text: String) -> String {
    var quoted = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": quoted += "\\\""
      case "\\": quoted += "\\\\"
      case _ where scalar.value < 0x20:
        let digits = String(scalar.value, radix: 16)
        quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      default: quoted.unicodeScalars.append(scalar)
      }
    }
    return quoted + "\""
  }
}

/// Base 64 (RFC 4648 §4).
enum Base64Text {
  private static let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

  /// Encodes with padding.
  static func encode(_ bytes: [UInt8]) -> String {
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let group = bytes[start..<min(start + 3, bytes.count)]
      let word = group.reduce(0) { $0 << 8 | Int($1) } << ((3 - group.count) * 8)
      for place in 0..<4 {
        text.append(place <= group.count ? digits[word >> (18 - 6 * place) & 63] : UInt8(ascii: "="))
      }
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// Decodes, ignoring blanks between digits; nil for anything else.
  static func decode(_ text: some Sequence<UInt8>) -> [UInt8]? {
    var bytes: [UInt8] = []
    var (word, count, isPadded) = (0, 0, false)
    for character in text {
      if [0x20, 0x09, 0x0A, 0x0D].contains(character) { continue }
      if character == UInt8(ascii: "=") {
        isPadded = true
        continue
      }
      guard !isPadded, let digit = digits.firstIndex(of: character) else { return nil }
      (word, count) = (word << 6 | digit, count + 1)
      if count == 4 {
        for shift in [16, 8, 0] { bytes.append(UInt8(truncatingIfNeeded: word >> shift)) }
        (word, count) = (0, 0)
      }
    }
    switch count {
    case 0: return bytes
    case 2: return bytes + [UInt8(truncatingIfNeeded: word >> 4)]
    case 3: return bytes + [UInt8(truncatingIfNeeded: word >> 10), UInt8(truncatingIfNeeded: word >> 2)]
    default: return nil
    }
  }
}

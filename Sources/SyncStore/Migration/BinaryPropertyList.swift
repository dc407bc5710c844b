/// Reads a binary property list: `bplist00`, objects, a table of their offsets, and a 32-byte trailer that
/// locates the table. All integers are big-endian. Every offset and count is checked before use.
struct BinaryPropertyList {
  static let magic = Array("bplist0".utf8)
  private static let trailer = 32

  private let bytes: [UInt8]
  private let offsetBytes: Int
  private let referenceBytes: Int
  private let count: Int
  private let rootIndex: Int
  private let table: Int
  private var visited = 0
  /// Number of values whose key occurs again in the same dictionary.
  private(set) var merged = 0

  init(_ bytes: [UInt8]) throws(DecodingFailure) {
    self.bytes = bytes
    guard bytes.count >= 8 + Self.trailer else { throw DecodingFailure("it is too short") }
    let start = bytes.count - Self.trailer
    (offsetBytes, referenceBytes) = (Int(bytes[start + 6]), Int(bytes[start + 7]))
    let fields = [8, 16, 24].map { field in
      bytes[(start + field)..<(start + field + 8)].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }
    guard (1...8).contains(offsetBytes), (1...8).contains(referenceBytes), fields[0] > 0,
      fields[0] <= UInt64(bytes.count), fields[1] < fields[0], fields[2] >= 8, fields[2] < UInt64(start),
      UInt64(start) - fields[2] >= fields[0] * UInt64(offsetBytes)
    else { throw DecodingFailure("its table of objects is out of bounds") }
    (count, rootIndex, table) = (Int(fields[0]), Int(fields[1]), Int(fields[2]))
  }

  mutating func root() throws(DecodingFailure) -> PropertyList { try object(rootIndex, depth: 0) }

  private func number(_ offset: Int, _ count: Int) throws(DecodingFailure) -> UInt64 {
    guard offset >= 0, count <= 16, offset <= table - count || offset >= table, offset <= bytes.count - count
    else {
      throw DecodingFailure("a number is out of bounds")
    }
    return bytes[offset..<(offset + count)].reduce(0) { $0 << 8 | UInt64($1) }
  }

  private mutating func object(_ index: Int, depth: Int) throws(DecodingFailure) -> PropertyList {
    visited += 1
    guard depth < PropertyList.depth, visited <= PropertyList.valueLimit else {
      throw DecodingFailure("its values lie too deep, or refer to each other")
    }
    guard index < count else { throw DecodingFailure("it refers to an object that is not there") }
    let place = try number(table + index * offsetBytes, offsetBytes)
    guard place >= 8, place < UInt64(table) else { throw DecodingFailure("an object is out of bounds") }
    let offset = Int(place)
    let (kind, low) = (bytes[offset] >> 4, Int(bytes[offset] & 0xF))
    switch kind {
    case 0x0 where low == 8 || low == 9: return .bool(low == 9)
    case 0x1 where low <= 4:
      // One to four bytes are unsigned; 16 bytes hold integers above the range of eight, and only the lower
      // eight count.
      let value = try number(offset + 1, 1 << low)
      guard low == 4, try number(offset + 1, 8) == 0 else { return .integer(Int64(bitPattern: value)) }
      return PropertyList(whole: value)
    case 0x2 where low == 2: return .real(Double(Float(bitPattern: UInt32(try number(offset + 1, 4)))))
    case 0x2 where low == 3: return .real(Double(bitPattern: try number(offset + 1, 8)))
    case 0x3 where low == 3:
      return .date(Double(bitPattern: try number(offset + 1, 8)) + PropertyList.epoch)
    case 0x4: return .data(Array(try body(offset, low, unit: 1)))
    case 0x5, 0x7:
      guard let text = String(validating: try body(offset, low, unit: 1), as: UTF8.self) else {
        throw DecodingFailure("a text is none")
      }
      return .string(text)
    case 0x6:
      let units = try body(offset, low, unit: 2)
      let words = stride(from: units.startIndex, to: units.endIndex, by: 2).map {
        UInt16(units[$0]) << 8 | UInt16(units[$0 + 1])
      }
      guard let text = String(validating: words, as: UTF16.self) else {
        throw DecodingFailure("a text is none")
      }
      return .string(text)
    case 0x8: return .integer(Int64(bitPattern: try number(offset + 1, low + 1)))
    case 0xA, 0xC:
      var values: [PropertyList] = []
      for reference in try references(try body(offset, low, unit: referenceBytes)) {
        values.append(try object(reference, depth: depth + 1))
      }
      return .array(values)
    case 0xD:
      let all = try references(try body(offset, low, unit: 2 * referenceBytes))
      var entries: StringDictionary<PropertyList> = [:]
      for index in 0..<(all.count / 2) {
        guard case .string(let key) = try object(all[index], depth: depth + 1) else {
          throw DecodingFailure("a key is no text")
        }
        if entries[key] != nil { merged += 1 }
        entries[key] = try object(all[all.count / 2 + index], depth: depth + 1)
      }
      return .dictionary(entries)
    default: throw DecodingFailure("it has an object of an unknown kind, \(bytes[offset])")
    }
  }

  /// The bytes after the marker at `offset`, whose lower half gives their count in units, or says that a
  /// number follows with it.
  private func body(_ offset: Int, _ low: Int, unit: Int) throws(DecodingFailure) -> ArraySlice<UInt8> {
    var (start, count) = (offset + 1, low)
    if low == 0xF {
      guard start < table, bytes[start] >> 4 == 1, bytes[start] & 0xF <= 3 else {
        throw DecodingFailure("a count is none")
      }
      let width = 1 << Int(bytes[start] & 0xF)
      let long = try number(start + 1, width)
      guard long <= UInt64(bytes.count) else { throw DecodingFailure("a count is out of bounds") }
      (start, count) = (start + 1 + width, Int(long))
    }
    guard count <= (table - start) / unit else { throw DecodingFailure("a value is out of bounds") }
    return bytes[start..<(start + count * unit)]
  }

  private func references(_ body: ArraySlice<UInt8>) throws(DecodingFailure) -> [Int] {
    try stride(from: body.startIndex, to: body.endIndex, by: referenceBytes).map {
      offset throws(DecodingFailure) in
      let index = body[offset..<(offset + referenceBytes)].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
      guard index < UInt64(count) else { throw DecodingFailure("it refers to an object that is not there") }
      return Int(index)
    }
  }
}

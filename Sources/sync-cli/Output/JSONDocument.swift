/// A place in a text, counted from 1: lines, and characters within the line.
struct TextPlace: Comparable, Sendable, CustomStringConvertible {
  let line: Int
  let column: Int

  init(line: Int, column: Int) { (self.line, self.column) = (line, column) }

  /// The place of the byte at `offset`.
  init(of offset: Int, in bytes: [UInt8]) {
    let before = bytes[..<min(max(0, offset), bytes.count)]
    let start = before.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
    line = before.count { $0 == 0x0A } + 1
    column = String(decoding: before[start...], as: UTF8.self).count + 1
  }

  static func < (a: TextPlace, b: TextPlace) -> Bool { (a.line, a.column) < (b.line, b.column) }

  var description: String { "line \(line), column \(column)" }
}

/// A JSON value with the offset of its first byte in the text.
struct LocatedJSON: Equatable, Sendable {
  /// One name and its value, each with its offset.
  struct Member: Equatable, Sendable {
    let name: String
    let offset: Int
    let value: LocatedJSON
  }

  let value: JSON
  let offset: Int
  /// The members of an object, repeated names included.
  private(set) var members: [Member] = []
  /// The items of an array.
  private(set) var items: [LocatedJSON] = []

  /// Takes the offsets of the value, and of all in it, from the beginning of the list.
  init(_ value: JSON, offsets: inout ArraySlice<Int>) {
    self.value = value
    offset = offsets.popFirst() ?? 0
    switch value {
    case .object(let all):
      for member in all {
        let offset = offsets.popFirst() ?? 0
        members.append(
          Member(name: member.name, offset: offset, value: LocatedJSON(member.value, offsets: &offsets)))
      }
    case .array(let all): for item in all { items.append(LocatedJSON(item, offsets: &offsets)) }
    case .null, .bool, .number, .string: break
    }
  }
}

/// A JSON text that was read as far as possible.
struct JSONDocument: Equatable, Sendable {
  /// Without the members and items that have mistakes; nil if nothing could be read.
  let root: LocatedJSON?
  let mistakes: [JSONFailure]
}

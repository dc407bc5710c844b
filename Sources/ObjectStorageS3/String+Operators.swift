// The string comparison operators of this module: by UTF-8 bytes.
//
// They shadow those of the standard library, which use canonical equivalence (`String.hasSameBytes(as:)`
// describes the danger), also in a synthesized `==` of a type with strings in it. Tables keyed by strings are
// `StringDictionary` and `StringSet`. Each module has its own copy of this file, since a shadowing operator
// must be visible in every file; a test holds the copies equal.

internal import SyncStore

extension String {
  static func == (first: String, second: String) -> Bool { first.hasSameBytes(as: second) }
  static func != (first: String, second: String) -> Bool { !first.hasSameBytes(as: second) }
  static func ~= (pattern: String, value: String) -> Bool { pattern.hasSameBytes(as: value) }
  static func < (first: String, second: String) -> Bool { first.utf8.lexicographicallyPrecedes(second.utf8) }
  static func > (first: String, second: String) -> Bool { second < first }

  func hasPrefix(_ prefix: String) -> Bool { utf8.starts(with: prefix.utf8) }
  func hasSuffix(_ suffix: String) -> Bool { utf8.suffix(suffix.utf8.count).elementsEqual(suffix.utf8) }
}

extension String? {
  static func == (first: String?, second: String?) -> Bool {
    switch (first, second) {
    case (.none, .none): true
    case (.some(let first), .some(let second)): first.hasSameBytes(as: second)
    default: false
    }
  }
  static func != (first: String?, second: String?) -> Bool { !(first == second) }
}

extension [String] {
  static func == (first: [String], second: [String]) -> Bool {
    first.count == second.count && zip(first, second).allSatisfy { $0.hasSameBytes(as: $1) }
  }
  static func != (first: [String], second: [String]) -> Bool { !(first == second) }
  mutating func sort() { sort(by: <) }
}

extension Sequence<String> {
  func sorted() -> [String] { sorted(by: <) }
  func contains(_ text: String) -> Bool { contains { $0.hasSameBytes(as: text) } }
}

extension Collection<String> {
  func firstIndex(of text: String) -> Index? { firstIndex { $0.hasSameBytes(as: text) } }
}

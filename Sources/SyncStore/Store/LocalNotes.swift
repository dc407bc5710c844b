/// What this copy notes for itself alone, by key: the values, and where their records lie.
///
/// Most are of large values that are not here, and of those there may be millions. They lie in parts, so that neither growing nor a change
/// beside somebody who keeps an earlier state (a compaction, a look at all) copies more than one part at once.
struct LocalNotes: Sendable {
  private struct Note: Sendable {
    var value: [UInt8]
    var place: Location
  }

  private struct Noted: Sendable {
    let key: [UInt8]
    var note: Note
  }

  /// As long as there are few, all of them, to be looked through: to have a table made is a tenth of a process's first opening.
  private var few: [Noted] = []
  private static let fewNotes = 16
  /// Empty as long as there are few. The first has all but those of large values, which are not many; the others have those by the last
  /// bytes of their hashes.
  private var parts: [[[UInt8]: Note]] = []

  private static func part(of key: [UInt8]) -> Int {
    guard key.starts(with: AbsentBlob.prefix), let last = key.last else { return 0 }
    return Int(last) + 1
  }

  private func note(of key: [UInt8]) -> Note? {
    parts.isEmpty ? few.first { $0.key == key }?.note : parts[Self.part(of: key)][key]
  }

  /// The value of a key; nil if nothing is noted under it.
  subscript(key: [UInt8]) -> [UInt8]? { note(of: key)?.value }

  /// Where the record of a key lies; nil if nothing is noted under it.
  func place(of key: [UInt8]) -> Location? { note(of: key)?.place }

  /// Where the record lies that this one replaces.
  mutating func set(_ key: [UInt8], _ value: [UInt8], at place: Location) -> Location? {
    let note = Note(value: value, place: place)
    if parts.isEmpty {
      if let index = few.firstIndex(where: { $0.key == key }) {
        defer { few[index].note = note }
        return few[index].note.place
      }
      if few.count < Self.fewNotes {
        few.append(Noted(key: key, note: note))
        return nil
      }
      parts = Array(repeating: [:], count: 257)
      for noted in few { parts[Self.part(of: noted.key)][noted.key] = noted.note }
      few = []
    }
    return parts[Self.part(of: key)].updateValue(note, forKey: key)?.place
  }

  /// Where the record lies that this ends.
  mutating func remove(_ key: [UInt8]) -> Location? {
    guard parts.isEmpty else { return parts[Self.part(of: key)].removeValue(forKey: key)?.place }
    return few.firstIndex { $0.key == key }.map { few.remove(at: $0).note.place }
  }

  /// The record of a key lies elsewhere now.
  mutating func move(_ key: [UInt8], to place: Location) {
    guard parts.isEmpty else {
      parts[Self.part(of: key)][key]?.place = place
      return
    }
    if let index = few.firstIndex(where: { $0.key == key }) { few[index].note.place = place }
  }

  /// Keys that begin with `prefix`, and their values, in any order.
  func all(beginning prefix: [UInt8] = []) -> [(key: [UInt8], value: [UInt8])] {
    let mayBeOfBlobs = prefix.starts(with: AbsentBlob.prefix) || AbsentBlob.prefix.starts(with: prefix)
    let noted = parts.prefix(mayBeOfBlobs ? parts.count : 1).flatMap { part in
      part.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.value.value) : nil }
    }
    return noted + few.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.note.value) : nil }
  }

  /// Where the records lie, in any order.
  var places: some Sequence<Location> {
    parts.lazy.flatMap { $0.values }.map(\.place) + few.map(\.note.place)
  }
}

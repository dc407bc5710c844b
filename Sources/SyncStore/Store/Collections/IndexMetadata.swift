/// Records which indexes of a collection are complete on this copy, and which are being built: a local record
/// (`schemas/values.md`).
///
/// A writer that does not know all of them removes the unknown ones from the record, in the transaction of
/// its write; so an index recorded as complete has the entries of all elements written here through a
/// collection. Building an index announces it first, and records it as complete only if the announcement is
/// still there: otherwise a writer that did not know the index has written since.
struct IndexMetadata: Equatable {
  /// An index as declared.
  struct Name: Hashable, Sendable {
    var name: String
    var version: Int
  }

  var complete: Set<Name> = []
  /// Journal position at the start of the build.
  var building: [Name: Int] = [:]

  /// Prefix of the local keys of these records.
  static let keyPrefix = StateKey.collectionPrefix

  static func key(of collection: String) -> [UInt8] { keyPrefix + Array(collection.utf8) }

  init(complete: Set<Name> = []) { self.complete = complete }

  /// Nil is the record of a collection without indexes. An unreadable record was written by a newer program:
  /// all indexes are rebuilt.
  init(_ bytes: [UInt8]?) {
    guard let bytes,
      let members = try? EncodedValue(bytes: bytes, type: .cbor).decoded(as: Members.self)
    else { return }
    for (text, number) in members.pairs {
      // Scalars, because a combining mark at the beginning of a name would hide the character before it.
      guard text.unicodeScalars.first == Self.buildingMarker else {
        complete.insert(Name(name: text, version: number))
        continue
      }
      let parts = text.unicodeScalars.dropFirst().split(separator: "/", maxSplits: 1)
      guard parts.count == 2, let version = Int(String(parts[0])) else { continue }
      building[Name(name: String(parts[1]), version: version)] = number
    }
  }

  /// The members of a record as written: a dictionary keyed by `String` would merge two names.
  private struct Members: Decodable {
    var pairs: [(String, Int)] = []

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: ValueKey.self)
      for key in container.allKeys {
        pairs.append((key.stringValue, try container.decode(Int.self, forKey: key)))
      }
    }
  }

  /// Nil if there is nothing to record.
  func bytes() throws(StoreError) -> [UInt8]? {
    if complete.isEmpty, building.isEmpty { return nil }
    return try EncodedValue(self).bytes
  }

  /// Marks an index being built; occurs in no index name.
  private static var buildingMarker: Unicode.Scalar { "\0" }

  /// Removes all indexes but `known`, because a writer with only these writes an element: the others lack its
  /// entries.
  mutating func invalidate(exceptFor known: Set<Name>) {
    complete.formIntersection(known)
    building = building.filter { known.contains($0.key) }
  }

  /// Announces builds, so that writers without these indexes remove them. An existing announcement, by
  /// another program or one that was killed, is kept: it is as good for the build that begins now.
  mutating func beginBuilding(_ wanted: Set<Name>, at position: Int) {
    for index in wanted where !complete.contains(index) && building[index] == nil {
      building[index] = position
    }
  }

  /// Records indexes as complete that were built since `since`. False if a writer that does not know one of
  /// them has written since.
  mutating func finishBuilding(_ wanted: Set<Name>, since: IndexMetadata) -> Bool {
    for index in wanted {
      guard let position = building[index], position == since.building[index] else { continue }
      building[index] = nil
      complete.insert(index)
    }
    return wanted.isSubset(of: complete)
  }
}

/// Encoded in a fixed order, so that equal records have equal bytes.
extension IndexMetadata: Encodable {
  func encode(to encoder: any Encoder) throws {
    let members =
      complete.map { ($0.name, $0.version) }
      + building.map { ("\(Self.buildingMarker)\($0.key.version)/\($0.key.name)", $0.value) }
    var container = encoder.container(keyedBy: ValueKey.self)
    for (name, number) in members.sorted(by: { $0.0 < $1.0 }) {
      try container.encode(number, forKey: ValueKey(stringValue: name))
    }
  }
}

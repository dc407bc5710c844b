/// Which indexes of a collection are complete on this copy, and which are being built: a local record (`schemas/values.md`).
///
/// A writer that knows less than all of them takes what it does not know out of the note, in the transaction of its write; so an index
/// that is noted as complete has the entries of all elements that were written here through a collection. Who builds one announces it
/// first, and notes it as complete only if its announcement is still there: nobody who did not know of it has written since.
struct IndexMetadata: Equatable {
  /// An index as it was declared.
  struct Name: Hashable, Sendable {
    var name: String
    var version: Int
  }

  var complete: Set<Name> = []
  /// When the building began: the journal's position.
  var building: [Name: Int] = [:]

  /// Before all local keys of notes.
  static let keyPrefix = Array("collection/".utf8)

  static func key(of collection: String) -> [UInt8] { keyPrefix + Array(collection.utf8) }

  init(complete: Set<Name> = []) { self.complete = complete }

  /// Nil is the note of a collection without indexes. One that does not read was written by a program that knew more: all are built anew.
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

  /// The members of a note as they were written: a dictionary keyed by `String` would merge two names.
  private struct Members: Decodable {
    var pairs: [(String, Int)] = []

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: ValueKey.self)
      for key in container.allKeys {
        pairs.append((key.stringValue, try container.decode(Int.self, forKey: key)))
      }
    }
  }

  /// Nil if there is nothing to note.
  func bytes() throws(StoreError) -> [UInt8]? {
    if complete.isEmpty, building.isEmpty { return nil }
    return try EncodedValue(self).bytes
  }

  /// No name of an index has it.
  private static var buildingMarker: Unicode.Scalar { "\0" }

  /// Who knows only these writes an element: the others lack its entries.
  mutating func invalidate(exceptFor known: Set<Name>) {
    complete.formIntersection(known)
    building = building.filter { known.contains($0.key) }
  }

  /// Some are to be built: from now on who does not know of them takes them out. One whose building was announced already, by another
  /// program or by one that was killed, keeps its announcement: what is built from now on is as good for it.
  mutating func beginBuilding(_ wanted: Set<Name>, at position: Int) {
    for index in wanted where !complete.contains(index) && building[index] == nil {
      building[index] = position
    }
  }

  /// They were built since `announced` was noted. False if somebody who does not know of one has written meanwhile.
  mutating func finishBuilding(_ wanted: Set<Name>, since: IndexMetadata) -> Bool {
    for index in wanted {
      guard let position = building[index], position == since.building[index] else { continue }
      building[index] = nil
      complete.insert(index)
    }
    return wanted.isSubset(of: complete)
  }
}

/// Always in the same order, so that equal notes are equal bytes.
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

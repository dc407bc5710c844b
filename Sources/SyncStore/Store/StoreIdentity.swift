/// The file `STORE`: which data set the directory holds, and what tells a copied or restored directory from the one it
/// was made of (rule R9). Text, so that a person can read it; `schemas/journal.md` has its layout.
package struct StoreIdentity: Equatable {
  var id: StoreID
  var name: String
  /// Where it was written: machine, file system, inode and birth of this very file.
  var fingerprint: [String]
  /// What the file holds.
  private let encoded: [UInt8]

  /// Its name in the store's directory.
  package static let fileName = "STORE"
  private static let heading = "syncstore 1"
  private static let limit = 4096

  /// Reads it; nil if there is none.
  static func read(_ directory: String, _ storage: any Storage) throws(StoreError) -> StoreIdentity? {
    guard let file = try file(in: directory, storage) else { return nil }
    return try StoreIdentity(file.contents(limit: limit), file.path)
  }

  /// What it is now, and whether it still lies where it was written; nil if there is none. One that has not changed since it was
  /// `known` is not taken apart again.
  static func look(
    at directory: String, _ environment: Environment, known: StoreIdentity
  ) throws(StoreError) -> (identity: StoreIdentity, isAtHome: Bool)? {
    guard let file = try file(in: directory, environment.storage) else { return nil }
    let bytes = try file.contents(limit: limit)
    let identity = bytes == known.encoded ? known : try StoreIdentity(bytes, file.path)
    return (identity, try identity.fingerprint == fingerprint(of: file, environment))
  }

  private static func file(
    in directory: String, _ storage: any Storage
  ) throws(StoreError) -> (any StorageFile)? {
    let path = directory + "/" + fileName
    return try storage.status(path) == nil ? nil : storage.open(path, .readOnly)
  }

  private init(_ bytes: [UInt8], _ path: String) throws(StoreError) {
    // Bytes: to tell the characters of a text apart is a tenth of an opening.
    let parts = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    let lines = parts.compactMap { String(validating: $0, as: UTF8.self) }
    guard lines.count == parts.count else {
      throw StoreError(.foreignFile, "is not text: restore it from a backup", path: path)
    }
    guard lines[0].hasPrefix("syncstore ") else {
      throw StoreError(.foreignFile, "is not a store's identity: restore it from a backup", path: path)
    }
    guard lines.count == 6, lines[5].isEmpty, lines[4] == Self.checksum(bytes[..<(parts[4].startIndex - 1)])
    else {
      guard lines[0] == Self.heading else {
        throw StoreError(
          .newerFormat, "says \"\(lines[0])\", this program knows \"\(Self.heading)\": update it", path: path)
      }
      throw StoreError(.damaged, "does not match its checksum: restore it from a backup", path: path)
    }
    guard lines[0] == Self.heading else {
      throw StoreError(
        .newerFormat, "says \"\(lines[0])\", this program knows \"\(Self.heading)\": update it", path: path)
    }
    guard let id = Self.field("id", lines[1]).flatMap({ StoreID($0) }),
      let name = Self.field("name", lines[2]), let place = Self.field("place", lines[3])
    else { throw StoreError(.damaged, "lacks a field: restore it from a backup", path: path) }
    (self.id, self.name, encoded) = (id, name, bytes)
    fingerprint = place.utf8.split(separator: UInt8(ascii: " ")).map { String(Substring($0)) }
  }

  /// Writes it anew, with the fingerprint of the file it becomes. The inode stays through the renaming. With `asCopy` the
  /// fingerprint is one that no file has: the first who opens the store for writing finds that it was copied.
  static func write(
    id: StoreID, name: String, asCopy: Bool = false, _ directory: String, _ environment: Environment
  ) throws(StoreError) {
    let storage = environment.storage
    let path = directory + "/" + fileName
    let temporary = path + ".new"
    _ = try storage.remove(temporary)
    let file = try storage.open(temporary, .create)
    let found = try fingerprint(of: file, environment)
    let place = (asCopy ? found.map { _ in "0" } : found).joined(separator: " ")
    var lines = [heading, "id \(id)", "name \(name)", "place \(place)"]
    lines.append(checksum(Array(lines.joined(separator: "\n").utf8)[...]))
    try file.write(Array((lines.joined(separator: "\n") + "\n").utf8), at: 0)
    try file.sync()
    try storage.rename(temporary, to: path)
    try storage.syncDirectory(directory)
  }

  /// Can the text be a name of a store, a member or a peer?
  package static func isName(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= Limits.nameBytes
      && text.unicodeScalars.allSatisfy { $0.value > 0x20 && $0.value != 0x7F && $0 != "/" }
  }

  private static func fingerprint(
    of file: any StorageFile, _ environment: Environment
  ) throws(StoreError) -> [String] {
    let status = try file.statusAtOpening
    // The machine's name is hashed: the file may be shown to others.
    let machine = XXH3.hash128(Array("syncstore machine \(environment.machine)".utf8))
    return [machine.high, machine.low, status.fileSystem, status.inode, status.birth].map {
      String($0, radix: 16)
    }
  }

  private static func field(_ name: String, _ line: String) -> String? {
    line.hasPrefix(name + " ") ? String(line.dropFirst(name.count + 1)) : nil
  }

  /// Of the four lines before it, without the end of the last.
  private static func checksum(_ lines: ArraySlice<UInt8>) -> String {
    "checksum " + String(XXH3.hash64(Array(lines), seed: 0), radix: 16)
  }
}

/// The file `STORE`: the data set of the directory, and a fingerprint that distinguishes a copied or restored
/// directory from its original (rule R9). Text, so that a person can read it; `schemas/journal.md` has its
/// layout.
package struct StoreIdentity: Equatable {
  var id: StoreID
  var name: String
  /// Where it was written: machine, file system, inode and birth of this very file.
  private let fingerprint: [UInt8]
  /// The bytes of the file.
  private let encoded: [UInt8]

  /// Its file name in the store's directory.
  package static let fileName = "STORE"
  private static let heading = "syncstore 1"
  private static let limit = 4096

  /// Reads the identity; nil if there is none.
  static func read(_ directory: String, storage: any Storage) throws(StoreError) -> StoreIdentity? {
    let path = directory + "/" + fileName
    guard let file = try storage.openIfPresent(path, .readOnly) else { return nil }
    return try StoreIdentity(file.contents(limit: limit), path: path)
  }

  /// Reads the identity again, and whether the store is still where it was written; nil if there is none. A
  /// file identical to `known` is not parsed again.
  ///
  /// - Parameter home: the `homeWord` that a writer verified under the running kernel, if the kernel vouches
  ///   for that. Then the machine is the same even if its name has changed: a container made anew on the same
  ///   volume can have another name (decision 46).
  static func reread(
    at directory: String, _ environment: Environment, known: StoreIdentity, home: UInt64?
  ) throws(StoreError) -> (identity: StoreIdentity, isAtHome: Bool)? {
    let path = directory + "/" + fileName
    guard let file = try environment.storage.openIfPresent(path, .readOnly) else { return nil }
    let bytes = try file.contents(limit: limit)
    let identity = bytes == known.encoded ? known : try StoreIdentity(bytes, path: path)
    return (identity, try identity.isAt(where: fingerprint(of: file, environment), home))
  }

  private func isAt(where found: [UInt8], _ home: UInt64?) -> Bool {
    if fingerprint == found { return true }
    guard home == homeWord else { return false }
    // File system, inode and birth, after the two halves of the machine's name.
    let places = [fingerprint, found].map { $0.split(separator: UInt8(ascii: " ")).dropFirst(2) }
    return places[0].count == 3 && places[0].elementsEqual(places[1])
  }

  /// A hash of the recorded fingerprint; never 0.
  var homeWord: UInt64 { XXH3.hash64(fingerprint, seed: 0) | 1 }

  private init(_ bytes: [UInt8], path: String) throws(StoreError) {
    do { _ = try UTF8Span(validating: bytes.span) } catch {
      throw StoreError(.foreignFile, "is not text: restore it from a backup", path: path)
    }
    // Parsed line by line from bytes: characters and an array of lines took a tenth of the time of an
    // opening.
    var rest = bytes[...]
    let heading = Self.line(&rest)
    guard heading.starts(with: "syncstore ".utf8) else {
      throw StoreError(.foreignFile, "is not a store's identity: restore it from a backup", path: path)
    }
    guard heading.elementsEqual(Self.heading.utf8) else {
      let found = String(decoding: heading, as: UTF8.self)
      throw StoreError(
        .newerFormat, "says \"\(found)\", this program knows \"\(Self.heading)\": update it", path: path)
    }
    let (first, second, third) = (Self.line(&rest), Self.line(&rest), Self.line(&rest))
    let checksum = bytes[..<max(0, rest.startIndex - 1)]
    guard Self.line(&rest).elementsEqual(Self.checksum(checksum)), rest.isEmpty, bytes.last == Self.newline
    else { throw StoreError(.damaged, "does not match its checksum: restore it from a backup", path: path) }
    guard let id = Self.field("id ", in: first).flatMap({ StoreID(String(decoding: $0, as: UTF8.self)) }),
      let name = Self.field("name ", in: second), let place = Self.field("place ", in: third)
    else { throw StoreError(.damaged, "lacks a field: restore it from a backup", path: path) }
    (self.id, encoded, fingerprint) = (id, bytes, Array(place))
    self.name = String(decoding: name, as: UTF8.self)
  }

  private static let newline = UInt8(ascii: "\n")

  /// Removes the next line from `rest`, and returns it without its line end.
  private static func line(_ rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let end = rest.firstIndex(of: newline) ?? rest.endIndex
    defer { rest = rest[min(end + 1, rest.endIndex)...] }
    return rest[..<end]
  }

  /// Writes the file anew, with its own fingerprint. The inode stays the same through the rename.
  ///
  /// With `asCopy` the fingerprint is one that no file has: the first process to open the store for writing
  /// finds that it was copied.
  static func write(
    id: StoreID, name: String, asCopy: Bool = false, to directory: String, environment: Environment
  ) throws(StoreError) {
    let storage = environment.storage
    let path = directory + "/" + fileName
    let temporary = path + ".new"
    _ = try storage.remove(temporary)
    let file = try storage.open(temporary, .create)
    let place = try asCopy ? Array("0 0 0 0 0".utf8) : fingerprint(of: file, environment)
    var bytes = Array("\(heading)\nid \(id)\nname \(name)\nplace ".utf8) + place
    bytes += [newline] + checksum(bytes[...]) + [newline]
    try file.write(bytes, at: 0)
    try file.sync()
    try storage.rename(temporary, to: path)
    try storage.syncDirectory(directory)
  }

  /// Whether the text can be the name of a store, a member or a peer.
  package static func isName(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= Limits.nameBytes
      && text.unicodeScalars.allSatisfy { $0.value > 0x20 && $0.value != 0x7F && $0 != "/" }
  }

  private static func fingerprint(
    of file: any StorageFile, _ environment: Environment
  ) throws(StoreError) -> [UInt8] {
    let status = try file.statusAtOpening
    // The machine's name is hashed: the file may be shown to others.
    let machine = XXH3.hash128(Array("syncstore machine \(environment.machine)".utf8))
    var text: [UInt8] = []
    for word in [machine.high, machine.low, status.fileSystem, status.inode, status.birth] {
      if !text.isEmpty { text.append(UInt8(ascii: " ")) }
      text += Hex.digits(of: word)
    }
    return text
  }

  private static func field(_ name: String, in line: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
    line.starts(with: name.utf8) ? line.dropFirst(name.utf8.count) : nil
  }

  /// The checksum of the four lines before it, without the end of the last.
  private static func checksum(_ lines: ArraySlice<UInt8>) -> [UInt8] {
    Array("checksum ".utf8) + Hex.digits(of: XXH3.hash64(Array(lines), seed: 0))
  }
}

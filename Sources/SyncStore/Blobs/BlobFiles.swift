private import Synchronization
private import Glibc

/// The files of the blob tier: where objects are stored, how they are created, and which files are refused.
///
/// Invariants:
/// - A path consists of 64 lower-case hex digits or of names generated here, never of data sent by a peer
///   (F83).
/// - An object gets its name only once it is complete: it is written under `partial/` and renamed.
/// - No link is followed below the directory, and a file with a second hard link is not ours (F84).
struct BlobFiles: Sendable {
  let storage: any Storage
  let directory: String

  static let subdirectories = ["objects", "partial", "quarantine", "packs"]
  private static let counter = Atomic<UInt64>(0)

  // MARK: Names

  static func shard(_ hash: BlobHash) -> String { "objects/" + Hex.string(of: hash.bytes.prefix(1)) }
  static func object(_ hash: BlobHash) -> String { shard(hash) + "/" + hash.description }
  static func partial(_ hash: BlobHash) -> String { "partial/" + hash.description }

  func path(_ name: String) -> String { directory + "/" + name }

  /// A number that is unique in the file names of this process.
  static func nextNumber() -> UInt64 { counter.add(1, ordering: .relaxed).newValue }

  /// A unique part of a file name; `StoreError.stableName` recognises it.
  ///
  /// The process number alone is not enough: two containers that share a directory can both have process 1.
  static func uniqueName() -> String {
    "\(SystemCall.processID)-\(nextNumber())-\(String(SystemCall.randomWord(), radix: 16))"
  }

  /// A unique name next to `path`, for a file that is renamed once it is complete.
  static func temporary(nextTo path: String) -> String { "\(path).\(uniqueName()).part" }

  // MARK: Directories

  /// Creates the missing directories, durably.
  func prepare() throws(StoreError) {
    var made = try storage.createDirectory(directory)
    if made { try storage.syncDirectory(DiskStorage.directory(of: directory)) }
    made = false
    for name in Self.subdirectories { made = try storage.createDirectory(path(name)) || made }
    if made { try storage.syncDirectory(directory) }
    try check()
  }

  /// The inode of the directory of packs; nil if it is missing.
  var packsInode: UInt64? {
    get throws(StoreError) { try storage.status(path("packs"))?.inode }
  }

  /// The error if the inode differs from that at opening.
  var replaced: StoreError {
    StoreError(
      .inputOutput,
      "was removed while in use, or the directory was emptied or its contents replaced: restore it from a backup",
      path: path("packs"))
  }

  /// Syncs the existing directories: the process that created them may have crashed before it did.
  func syncDirectories() throws(StoreError) {
    try storage.syncDirectory(directory)
    try storage.syncDirectory(DiskStorage.directory(of: directory))
  }

  /// Makes removals and replacements in the object directories durable.
  func syncObjectDirectories() throws(StoreError) {
    for shard in try shards() { try storage.syncDirectory(path(shard)) }
    if try storage.status(path("packs")) != nil { try storage.syncDirectory(path("packs")) }
  }

  /// Refuses entries that are not directories.
  ///
  /// A read-only store tolerates missing ones: a tier of the first version has no packs, and its creator may
  /// have crashed or lost power half-way.
  func check() throws(StoreError) {
    try requireDirectory(directory)
    for name in Self.subdirectories where try storage.status(path(name)) != nil {
      try requireDirectory(path(name))
    }
  }

  /// The names in one of the subdirectories; none if it is missing.
  private func list(_ name: String) throws(StoreError) -> [String] {
    try storage.status(path(name)) == nil ? [] : storage.list(path(name))
  }

  private func requireDirectory(_ path: String) throws(StoreError) {
    guard try storage.status(path)?.kind == .directory else {
      throw StoreError(
        .foreignFile, "is not a directory of the blob tier: move away what is there", path: path)
    }
  }

  // MARK: Objects

  /// The size of an object; nil if it is missing, or the file there is not ours.
  func size(of hash: BlobHash) throws(StoreError) -> UInt64? {
    guard let status = try storage.status(path(Self.shard(hash))) else { return nil }
    guard status.kind == .directory else {
      throw StoreError(
        .foreignFile, "is not a directory of the blob tier: move away what is there",
        path: path(Self.shard(hash)))
    }
    return try size(Self.object(hash))
  }

  /// Bytes received by an unfinished transfer; 0 if none has begun.
  func partialSize(_ hash: BlobHash) throws(StoreError) -> UInt64 { try size(Self.partial(hash)) ?? 0 }

  private func size(_ name: String) throws(StoreError) -> UInt64? {
    guard let status = try storage.status(path(name)), status.isSingleLinkFile else { return nil }
    return UInt64(status.size)
  }

  /// Whether anything exists at the object's path.
  func isOccupied(_ hash: BlobHash) throws(StoreError) -> Bool {
    try storage.status(path(Self.object(hash))) != nil
  }

  /// Opens an object; nil if it is missing.
  func open(_ hash: BlobHash) throws(StoreError) -> (any StorageFile)? {
    try open(Self.object(hash), .readOnly)
  }

  /// Opens a file of the tier; nil if it is missing.
  func open(_ name: String, _ mode: OpenMode) throws(StoreError) -> (any StorageFile)? {
    do throws(StoreError) {
      let file = try storage.open(name, beneath: directory, mode)
      guard try file.status().links <= 1 else {
        throw StoreError(
          .foreignFile, "has a second name elsewhere, which could change it: move it away", path: path(name))
      }
      return file
    } catch  where error.errno == ENOENT {
      return nil
    }
  }

  /// Calls `body` for each object here, in the order of names. Files that are not named like an object are
  /// skipped.
  func eachObject(_ body: (BlobHash, UInt64) throws(StoreError) -> Void) throws(StoreError) {
    for shard in try shards() {
      for name in try storage.list(path(shard)) {
        guard let hash = BlobHash(name), Self.object(hash) == shard + "/" + name,
          let size = try size(shard + "/" + name)
        else { continue }
        try body(hash, size)
      }
    }
  }

  /// The first eight bytes of the names of all objects stored in files.
  func objectPrefixes() throws(StoreError) -> Set<UInt64> {
    var prefixes: Set<UInt64> = []
    for shard in try shards() {
      for name in try storage.list(path(shard)) {
        if let hash = BlobHash(name) { prefixes.insert(hash.prefix) }
      }
    }
    return prefixes
  }

  /// Names, relative to the directory, of entries below `objects/` that are no objects.
  func unknownFiles() throws(StoreError) -> [String] {
    let shards = try shards()
    var found = try list("objects").map { "objects/" + $0 }.filter { !shards.contains($0) }
    for shard in shards {
      for name in try storage.list(path(shard)) {
        if let hash = BlobHash(name), Self.object(hash) == shard + "/" + name,
          try size(shard + "/" + name) != nil
        {
          continue
        }
        found.append(shard + "/" + name)
      }
    }
    return found
  }

  private func shards() throws(StoreError) -> [String] {
    var shards: [String] = []
    for name in try list("objects") {
      guard name.utf8.count == 2, Hex.bytes(of: name) != nil, name == name.lowercased(),
        try storage.status(path("objects/" + name))?.kind == .directory
      else { continue }
      shards.append("objects/" + name)
    }
    return shards
  }

  // MARK: Changes

  /// Creates a file under `partial/` and locks it for as long as this process writes: unlocked files may be
  /// swept.
  func begin() throws(StoreError) -> (file: any StorageFile, name: String) {
    while true {
      let name = "partial/new-\(Self.uniqueName())"
      do throws(StoreError) {
        let file = try storage.open(name, beneath: directory, .create)
        _ = try file.lock(byte: 0, .exclusive, wait: true)
        // A sweep may have removed it between creation and locking, as a leftover of a killed process.
        if try file.status().links > 0 { return (file, name) }
      } catch  where error.errno == EEXIST {
        // Left by a killed process with the same process number.
        continue
      }
    }
  }

  /// Names under `partial/` that `begin` created, in any process.
  func temporaries() throws(StoreError) -> [String] {
    try list("partial").filter { $0.hasPrefix("new-") }.map { "partial/" + $0 }
  }

  /// Removes the files under `partial/` that killed processes were writing. Returns their count.
  func removeTemporaries() throws(StoreError) -> Int {
    var count = 0
    for name in try temporaries() {
      do throws(StoreError) {
        guard let file = try open(name, .readWrite) else { continue }
        // A live writer holds the lock.
        guard try file.lock(byte: 0, .exclusive, wait: false) else { continue }
        if try remove(name) { count += 1 }
      } catch  where error.code == .foreignFile {
        try quarantine(name)
      }
    }
    return count
  }

  /// Unfinished transfers.
  func partials() throws(StoreError) -> [BlobHash] {
    try list("partial").compactMap { BlobHash($0) }
  }

  /// Creates the shard directory of an object. True if it was missing.
  func makeShard(_ hash: BlobHash) throws(StoreError) -> Bool {
    try requireDirectory(path("objects"))
    let made = try storage.createDirectory(path(Self.shard(hash)))
    if !made { try requireDirectory(path(Self.shard(hash))) }
    return made
  }

  /// Renames the complete file `name` to its object. False if the object exists and `replacing` is false.
  func publish(_ name: String, as hash: BlobHash, replacing: Bool) throws(StoreError) -> Bool {
    let object = path(Self.object(hash))
    guard replacing else { return try storage.renameUnlessPresent(path(name), to: object) }
    try storage.rename(path(name), to: object)
    return true
  }

  /// Removes a file of the tier, or a link in its place. False if there was none.
  @discardableResult
  func remove(_ name: String) throws(StoreError) -> Bool {
    if name.hasPrefix("objects/") {
      try requireDirectory(path("objects"))
      let shard = DiskStorage.directory(of: name)
      guard try storage.status(path(shard)) != nil else { return false }
      try requireDirectory(path(shard))
    }
    return try storage.remove(path(name))
  }

  /// Keeps corrupt bytes in `quarantine/`, under a unique name.
  func quarantineBytes(_ bytes: [UInt8], _ hash: BlobHash) throws(StoreError) {
    for number in 0... {
      let name = "quarantine/\(hash)" + (number == 0 ? "" : ".\(number)")
      do throws(StoreError) {
        return try storage.open(name, beneath: directory, .create).write(bytes, at: 0)
      } catch  where error.errno == SystemCall.exists {
        continue
      }
    }
  }

  /// Moves the entry `name` to `quarantine/`, under a unique name. False if there is none.
  @discardableResult
  func quarantine(_ name: String) throws(StoreError) -> Bool {
    let last = name.unicodeScalars.split(separator: "/").last.map { String($0) } ?? name
    for number in 0... {
      let target = path("quarantine/" + last + (number == 0 ? "" : ".\(number)"))
      do throws(StoreError) {
        if try storage.renameUnlessPresent(path(name), to: target) { return true }
      } catch  where error.errno == ENOENT {
        return false
      }
    }
    return false
  }
}

extension FileStatus {
  /// Whether this is a regular file with one hard link, as the blob tier creates them.
  var isSingleLinkFile: Bool { kind == .file && links == 1 }
}

package import SyncStore

/// Objects as files of a directory: on a disk, a stick, an NFS or SMB share, or in a folder that another
/// program carries elsewhere.
///
/// An object is written under a temporary name, synced, renamed, and its directory synced. Its version is a
/// hash of its bytes: modification times are not trusted, and no lock is taken. Files that are no objects
/// (whatever begins with a dot, names of other forms) are ignored and never touched. Conditions are checked
/// before the rename; two writers at the same moment may both pass `.version`, never both `.absent`.
public final class DirectoryStore: ObjectStore {
  private struct State {
    var figures = ObjectStoreFigures()
    /// The latest time that the file system has stated, in milliseconds since 1970.
    var clock: UInt64?
  }

  private let path: String
  private let storage: any Storage
  private let state = LockedField(State())
  private static let temporaryPrefix = ".new-"
  /// Bytes of the hash that is an object's version.
  private static let versionBytes = 12

  /// The objects in a directory, which must exist: a stick that is not mounted must not be taken for an empty
  /// relay.
  ///
  /// - Throws: `.missing` if the directory does not exist; `.invalid` if it is something else.
  public convenience init(at path: String) throws(ObjectStoreError) {
    try self.init(at: path, storage: DiskStorage(sharing: ()))
  }

  /// The objects in a directory of a storage, for tests.
  package init(at path: String, storage: any Storage) throws(ObjectStoreError) {
    self.storage = storage
    let (canonical, status) = try Self.mapping(path) { () throws(StoreError) in
      let canonical = try storage.canonicalPath(of: path)
      return (canonical, try storage.status(canonical))
    }
    guard let status else {
      throw ObjectStoreError(
        .missing, "the relay's directory \(path) does not exist: mount it, or make it", status: 404)
    }
    guard status.kind == .directory else {
      throw ObjectStoreError(.invalid, "the relay \(path) is not a directory: give a directory")
    }
    self.path = canonical
  }

  /// `dir:` and the path.
  public var location: String { "dir:" + path }
  /// Requests so far, counted as a bucket would.
  public var figures: ObjectStoreFigures { state.withLock { $0.figures } }
  /// The latest time at which the file system says that an object was made: its clock is there, or further.
  public var clock: UInt64? { state.withLock { $0.clock } }

  /// Reads an object, or bytes of it.
  ///
  /// - Throws: as `ObjectStore.get`.
  public func get(
    _ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int
  ) async throws(ObjectStoreError) -> ObjectReading {
    try await run { () throws(ObjectStoreError) in
      try self.read(name, range: range, unless: known, limit: limit)
    }
  }

  /// Writes an object, durably.
  ///
  /// - Throws: as `ObjectStore.put`.
  public func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome {
    try await run { () throws(ObjectStoreError) in try self.write(name, bytes, if: condition) }
  }

  /// The objects whose names begin with `prefix`, by name.
  ///
  /// - Throws: as `ObjectStore.list`.
  public func list(_ prefix: String) async throws(ObjectStoreError) -> [ObjectEntry] {
    try await run { () throws(ObjectStoreError) in try self.entries(prefix) }
  }

  /// Deletes objects.
  ///
  /// - Throws: as `ObjectStore.delete`.
  public func delete(_ names: [String]) async throws(ObjectStoreError) {
    try await run { () throws(ObjectStoreError) in
      for name in names {
        let file = try self.file(name)
        try Self.mapping(file) { () throws(StoreError) in _ = try self.storage.remove(file) }
        self.state.withLock { $0.figures.count(.delete, status: 204) }
      }
    }
  }

  /// Calls back when the bell, or another object next to it, has changed, as long as the returned watch is
  /// held; nil where that cannot be noticed.
  func watch(_ changed: @escaping @Sendable () -> Void) -> DirectoryWatch? {
    storage is DiskStorage ? DirectoryWatch(path, changed) : nil
  }

  // MARK: Blocking parts

  private func run<Answer: Sendable>(
    _ body: @escaping @Sendable () throws(ObjectStoreError) -> Answer
  ) async throws(ObjectStoreError) -> Answer {
    guard !Task.isCancelled else { throw ObjectStoreError(.cancelled, "\(location): the task was cancelled") }
    let result = try? await WorkerPool.shared.run { () throws(ReplicationError) in
      Result { () throws(ObjectStoreError) in try body() }
    }
    guard let result else { preconditionFailure("the work returns its error") }
    return try result.get()
  }

  private func file(_ name: String) throws(ObjectStoreError) -> String {
    guard ObjectName.isValid(name) else {
      throw ObjectStoreError(.invalid, "\(location): \(name.printable) is no name of an object")
    }
    return path + "/" + name
  }

  private func read(
    _ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int
  ) throws(ObjectStoreError) -> ObjectReading {
    let path = try file(name)
    let found = try Self.mapping(path) { () throws(StoreError) -> (any StorageFile, FileStatus)? in
      guard let status = try self.storage.status(path), status.kind == .file else { return nil }
      let file = try self.storage.open(path, .readOnly)
      return (file, try file.statusAtOpening)
    }
    guard let (file, status) = found else {
      try requireDirectory()
      state.withLock { $0.figures.count(.get, status: 404) }
      return .absent
    }
    let wanted = (range ?? 0..<UInt64(status.size)).clamped(to: 0..<UInt64(status.size))
    guard wanted.count <= limit else {
      throw ObjectStoreError(
        .tooLarge,
        "\(location)/\(name) has \(wanted.count) bytes, \(limit) is the most it can have: it is no object of this program"
      )
    }
    let bytes = try Self.mapping(path) { () throws(StoreError) in
      try file.read(wanted.count, at: Int(wanted.lowerBound))
    }
    // The version of a part would be that of other bytes.
    let version = range == nil ? Self.version(of: bytes) : nil
    note(status)
    if let known, version == known {
      state.withLock { $0.figures.count(.get, status: 304) }
      return .unchanged
    }
    state.withLock { $0.figures.count(.get, status: 200, received: bytes.count) }
    return .found(ObjectContent(bytes: bytes, version: version, modified: Self.time(status)))
  }

  private func write(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) throws(ObjectStoreError) -> PutOutcome {
    let path = try file(name)
    try requireDirectory()
    let temporary = self.path + "/" + Self.temporaryPrefix + Hex.string(of: SecureRandom.bytes(8))
    do throws(ObjectStoreError) {
      let isWritten = try Self.mapping(path) { () throws(StoreError) in
        guard try self.holds(condition, path) else { return false }
        let file = try self.storage.open(temporary, .create)
        try file.write(bytes, at: 0)
        try file.sync()
        self.note(try file.status())
        let directories = try self.makeDirectories(of: name)
        guard condition != .absent else {
          guard try self.storage.renameUnlessPresent(temporary, to: path) else {
            _ = try self.storage.remove(temporary)
            return false
          }
          for directory in directories { try self.storage.syncDirectory(directory) }
          return true
        }
        try self.storage.rename(temporary, to: path)
        for directory in directories { try self.storage.syncDirectory(directory) }
        return true
      }
      state.withLock { $0.figures.count(.put, status: isWritten ? 200 : 412, sent: bytes.count) }
      return isWritten ? .stored(Self.version(of: bytes)) : .refused
    } catch {
      // Nothing refers to it; if it cannot be removed now, `relay gc` finds it.
      _ = try? storage.remove(temporary)
      throw error
    }
  }

  private func holds(_ condition: PutCondition, _ path: String) throws(StoreError) -> Bool {
    switch condition {
    case .always: return true
    case .absent: return try storage.status(path) == nil
    case .version(let version):
      guard try storage.status(path)?.kind == .file else { return false }
      let file = try storage.open(path, .readOnly)
      return Self.version(of: try file.contents(limit: Int.max)) == version
    }
  }

  /// Makes the directories that the name needs. Returns those whose entries must be synced, the file's own
  /// first.
  private func makeDirectories(of name: String) throws(StoreError) -> [String] {
    var directories = [path]
    let parts = name.utf8.split(separator: UInt8(ascii: "/")).dropLast()
    var isNew = false
    for part in parts {
      let directory = directories[0] + "/" + String(decoding: Array(part), as: UTF8.self)
      isNew = try storage.createDirectory(directory) || isNew
      directories.insert(directory, at: 0)
    }
    return isNew ? directories : [directories[0]]
  }

  private func entries(_ prefix: String) throws(ObjectStoreError) -> [ObjectEntry] {
    try requireDirectory()
    var found: [ObjectEntry] = []
    // Only directories that can hold such names.
    let parts = prefix.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).dropLast()
    let directory = parts.map { String(decoding: Array($0), as: UTF8.self) + "/" }.joined()
    try collect(directory, &found, depth: 0)
    state.withLock { $0.figures.count(.list, status: 200) }
    return found.filter { $0.name.utf8.starts(with: prefix.utf8) }.sorted {
      $0.name.utf8.lexicographicallyPrecedes($1.name.utf8)
    }
  }

  /// Deeper directories are none of a relay.
  private static let maximumDepth = 4

  /// Adds the objects in the directory whose name, with a slash, is `directory`.
  private func collect(
    _ directory: String, _ found: inout [ObjectEntry], depth: Int
  ) throws(ObjectStoreError) {
    let base = path + "/" + directory
    let listed = try Self.mapping(base) { () throws(StoreError) -> [(String, FileStatus)] in
      guard try self.storage.status(String(base.dropLast()))?.kind == .directory else { return [] }
      var listed: [(String, FileStatus)] = []
      for name in try self.storage.list(String(base.dropLast())) {
        // It may be gone by now.
        if let status = try self.storage.status(base + name) { listed.append((name, status)) }
      }
      return listed
    }
    for (name, status) in listed where ObjectName.isValid(directory + name) {
      switch status.kind {
      case .file:
        found.append(
          ObjectEntry(
            name: directory + name, size: UInt64(status.size), version: nil, modified: Self.time(status)))
      case .directory:
        if depth < Self.maximumDepth { try collect(directory + name + "/", &found, depth: depth + 1) }
      case .link, .other: continue
      }
    }
  }

  /// Fails if the directory is gone: a stick that was pulled out is no empty relay.
  private func requireDirectory() throws(ObjectStoreError) {
    let status = try Self.mapping(path) { () throws(StoreError) in try self.storage.status(self.path) }
    guard status?.kind == .directory else {
      throw ObjectStoreError(
        .missing, "the relay's directory \(path) is gone: mount it again", status: 404)
    }
  }

  private func note(_ status: FileStatus) {
    guard let time = Self.time(status) else { return }
    state.withLock { $0.clock = max($0.clock ?? 0, time) }
  }

  /// When the file was made, in milliseconds; nil if the file system does not say.
  private static func time(_ status: FileStatus) -> UInt64? {
    status.birth == 0 ? nil : status.birth / 1_000_000
  }

  private static func version(of bytes: [UInt8]) -> ObjectVersion {
    ObjectVersion(tag: Hex.string(of: SHA256.hash(bytes).prefix(versionBytes)))
  }

  private static func mapping<Answer>(
    _ path: String, _ body: () throws(StoreError) -> Answer
  ) throws(ObjectStoreError) -> Answer {
    do throws(StoreError) { return try body() } catch {
      let code: ObjectStoreError.Code =
        switch error.code {
        case .diskFull: .full
        case .readOnly, .notAllowed: .denied
        default: error.errno == SystemCall.permissionDenied ? .denied : .invalid
        }
      throw ObjectStoreError(code, "the relay's directory: \(error.description)")
    }
  }
}

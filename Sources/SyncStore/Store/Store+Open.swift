/// Creating and opening: access checks, recovery, and what must be repaired before the first write.
extension Store {
  /// Creates a store in `path`: a directory that does not exist or is empty, or a symbolic link to one.
  ///
  /// - Parameters:
  ///   - name: at most `Limits.nameBytes` bytes of text without blanks or slashes; by default the directory's
  ///     name.
  ///   - id: the data set to become a copy of; by default a new one.
  /// - Throws: `.alreadyExists`, `.unsafeDirectory`, `.unsafeFileSystem`, `.diskFull`, `.outOfBounds` …
  public static func create(
    at path: String, name: String? = nil, id: StoreID? = nil, configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try create(
      at: path, name: name, id: id, configuration: configuration,
      environment: .real(handlesSignals: configuration.handlesSignals))
  }

  /// Opens the store in `path`.
  ///
  /// Within one process, opening a directory again returns the same instance (F96), by whatever path, also
  /// through a symbolic link, which is resolved once, at opening.
  ///
  /// An open instance keeps its configuration, including `durability` and `defaultLifetime`: the
  /// configuration given here applies only if this call opens the store. Two parts are always checked: the
  /// mode must be the same, and the passphrase must be right. `Store.configuration` is the one in force; each
  /// write can have a durability of its own.
  ///
  /// - Throws: `.notAStore`, `.busy`, `.damaged`, `.newerFormat`, `.unsafeDirectory`, `.unsafeFileSystem` …
  public static func open(
    at path: String, configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try open(
      at: path, configuration: configuration,
      environment: .real(handlesSignals: configuration.handlesSignals))
  }

  /// `create` with an explicit environment, for tests.
  package static func create(
    at path: String, name: String?, id: StoreID?, configuration: Configuration, environment: Environment
  ) throws(StoreError) -> Store {
    guard configuration.mode != .readOnly else {
      throw StoreError(
        .readOnly, "a store cannot be created for reading only: choose another mode", path: path)
    }
    let storage = environment.storage
    let path = try directory(resolving: path, storage)
    try StagedDirectory.recover(path, storage)
    let name = name ?? path.unicodeScalars.split(separator: "/").last.map { String($0) } ?? "store"
    guard StoreIdentity.isName(name) else {
      throw StoreError(
        .outOfBounds,
        "\"\(name)\" cannot be a name: use 1 to \(Limits.nameBytes) bytes without blanks or slashes",
        path: path)
    }
    if try !storage.createDirectory(path) {
      try checkIsFree(path, storage: storage)
      try checkNames(path, storage: storage)
    }
    let (environment, _) = try anchoredDirectory(path, configuration: configuration, environment: environment)
    try make(
      name: name, id: id, at: path, configuration: try configuration.checked(), environment: environment)
    return try open(at: path, configuration: configuration, environment: environment)
  }

  /// Makes the directory a store under the creation lock. A concurrent creator waits, then finds the store.
  private static func make(
    name: String, id: StoreID?, at path: String, configuration: Configuration,
    environment: Environment
  ) throws(StoreError) {
    try withCreationLock(at: path, storage: environment.storage) { () throws(StoreError) in
      try createLocked(name: name, id: id, at: path, configuration: configuration, environment: environment)
    }
  }

  /// Runs `body` under the lock that excludes concurrent creation in the same directory.
  package static func withCreationLock(
    at path: String, storage: any Storage, _ body: () throws(StoreError) -> Void
  ) throws(StoreError) {
    let control = try storage.open(path + "/" + StoreLayout.control, .openOrCreate)
    let moved = StoreError(.busy, "the directory was moved or removed meanwhile: try again", path: path)
    guard try control.lock(byte: StoreLayout.entranceByte, .exclusive, wait: true) else { throw moved }
    defer { _ = try? control.lock(byte: StoreLayout.entranceByte, .none, wait: false) }
    guard try storage.status(control.path)?.inode == control.status().inode else { throw moved }
    try body()
  }

  private static func createLocked(
    name: String, id: StoreID?, at path: String, configuration: Configuration,
    environment: Environment
  ) throws(StoreError) {
    let storage = environment.storage
    try checkIsFree(path, storage: storage)
    try checkLeftovers(path, storage: storage)
    let journalDirectory = path + "/" + StoreLayout.journal
    _ = try storage.createDirectory(journalDirectory)
    // A killed creation leaves segments without any write (F20).
    for name in try storage.list(journalDirectory) { _ = try storage.remove(journalDirectory + "/" + name) }
    let id = id ?? StoreID(bytes: environment.random(16))
    guard let id else { preconditionFailure("16 bytes were asked for") }
    let journalKeys = try JournalKeys.create(
      path, store: id, passphrase: configuration.passphrase, cost: configuration.passphraseCost,
      environment: environment)
    var journal = Journal(
      directory: journalDirectory, environment: environment, store: id, writable: true,
      largestSegment: configuration.segmentBytes, keys: journalKeys)
    let actor = JournalEntry.local(key: StateKey.actor, value: environment.newActor().bytes)
    try journal.begin(after: 0, durable: 0, position: 0, transactions: [[actor]])
    try storage.syncDirectory(path)
    // Last: writing the identity file makes the directory a store.
    try StoreIdentity.write(id: id, name: name, to: path, environment: environment)
    try storage.syncParentDirectory(of: path)
  }

  private static func checkIsFree(_ path: String, storage: any Storage) throws(StoreError) {
    guard try StoreIdentity.read(path, storage: storage) == nil else {
      throw StoreError(
        .alreadyExists, "there is a store already: open it, or choose another directory", path: path)
    }
  }

  /// Refuses a directory with other content before anything is created in it, even the file that is locked.
  private static func checkNames(_ path: String, storage: any Storage) throws(StoreError) {
    let own: StringSet = [
      StoreLayout.journal, StoreLayout.control, StoreIdentity.fileName, StoreIdentity.fileName + ".new",
      "keys",
    ]
    if let other = try storage.list(path).first(where: { !own.contains($0) }) {
      // Additional store files mean that another process has created the store concurrently.
      try checkIsFree(path, storage: storage)
      throw StoreError(
        .alreadyExists, "the directory is not empty (\(other)): choose another", path: path)
    }
  }

  /// Accepts the leftovers of a killed creation, and nothing else.
  private static func checkLeftovers(_ path: String, storage: any Storage) throws(StoreError) {
    try checkNames(path, storage: storage)
    let journal = path + "/" + StoreLayout.journal
    guard try storage.status(journal) != nil else { return }
    let segments = try storage.list(journal).filter { $0.hasSuffix(".segment") }
    guard segments.count <= 1 else {
      throw StoreError(
        .damaged,
        "there is a journal, but its identity file \(StoreIdentity.fileName) is gone: restore that file",
        path: path)
    }
    for name in segments {
      let first = try storage.open(journal + "/" + name, .readOnly).read(SegmentHeader.length + 4096, at: 0)
      // A killed creation wrote at most one local record, of well under 128 bytes, plus what its encryption
      // needs.
      var most = SegmentHeader.length + 128
      if case .whole(let header, _) = SegmentHeader.read(first), header.generation > 0 {
        most += EncryptedRecordLayout.definitions
      }
      guard first.dropFirst(most).allSatisfy({ $0 == 0 }) else {
        throw StoreError(
          .damaged,
          "there is a journal, but its identity file \(StoreIdentity.fileName) is gone: restore that file",
          path: path)
      }
    }
  }

  private static func directory(resolving path: String, _ storage: any Storage) throws(StoreError) -> String {
    let path = try storage.canonicalPath(of: path)
    guard try storage.status(path)?.kind != .link else { throw linkToNothing(path) }
    return path
  }

  private static func linkToNothing(_ path: String) -> StoreError {
    StoreError(
      .notAStore, "is a link that leads nowhere: make the directory that it names, or name another",
      path: path)
  }

  @discardableResult
  private static func checkDirectory(_ path: String, storage: any Storage) throws(StoreError) -> FileStatus {
    guard let status = try storage.status(path) else {
      throw StoreError(
        .notAStore, "there is no such directory: create a store with `Store.create`", path: path)
    }
    guard status.kind != .link else { throw linkToNothing(path) }
    guard status.kind == .directory else {
      throw StoreError(.notAStore, "is not a directory: name the one of a store", path: path)
    }
    guard status.owner == SystemCall.userID else {
      throw StoreError(
        .unsafeDirectory, "belongs to another user: run as user \(status.owner), or change its owner",
        path: path)
    }
    guard status.permissions & 0o022 == 0 else {
      throw StoreError(.unsafeDirectory, "others can write to it: run `chmod go-w`", path: path)
    }
    return status
  }

  /// Checks the directory at `path` and opens it; also returns the environment adapted to it.
  ///
  /// All further operations are relative to the open directory, whatever happens to its name.
  private static func anchoredDirectory(
    _ path: String, configuration: Configuration, environment: Environment
  ) throws(StoreError) -> (Environment, FileStatus) {
    try checkDirectory(path, storage: environment.storage)
    var environment = environment
    environment.storage = try environment.storage.anchored(at: path)
    // Checked again: another directory may have been opened than the one checked above.
    let status = try checkDirectory(path, storage: environment.storage)
    return (try Self.environment(environment, for: path, configuration), status)
  }

  /// The environment adapted to the file system. Refuses a network file system unless the configuration
  /// allows it (F98).
  private static func environment(
    _ environment: Environment, for path: String, _ configuration: Configuration
  ) throws(StoreError) -> Environment {
    let fileSystem = try environment.storage.fileSystem(path)
    var environment = environment
    environment.usesPwrite = fileSystem.mappedStoresMayFail
    guard let network = fileSystem.network, !configuration.allowsNetworkFileSystem else { return environment }
    throw StoreError(
      .unsafeFileSystem,
      "lies on a network file system (\(network)), where locks and mapped memory cannot be relied on: move it to a local "
        + "disk, or, if no other machine uses it, allow it (`Configuration.allowsNetworkFileSystem`)",
      path: path)
  }

  /// `open` with an explicit environment, for tests.
  package static func open(
    at path: String, configuration: Configuration, environment: Environment
  ) throws(StoreError) -> Store {
    let configuration = try configuration.checked()
    let path = try environment.storage.canonicalPath(of: path)
    while true {
      try StagedDirectory.recover(path, environment.storage)
      let status = try checkDirectory(path, storage: environment.storage)
      let store = try StoreRegistry.shared.serialized(status, environment: environment, path: path) {
        () throws(StoreError) in
        try openSerialized(at: path, status: status, configuration: configuration, environment: environment)
      }
      if let store { return store }
    }
  }

  /// Opens the directory with this `status`; nil if `path` now names another one, which must be serialized
  /// under its own status.
  private static func openSerialized(
    at path: String, status: FileStatus, configuration: Configuration, environment: Environment
  ) throws(StoreError) -> Store? {
    let (environment, held) = try anchoredDirectory(
      path, configuration: configuration, environment: environment)
    guard StoreRegistry.isSame(status, held) else { return nil }
    let found = try StoreIdentity.read(path, storage: environment.storage)
    // First: with a wrong passphrase nothing is modified, and an instance opened with the right one is not
    // handed out.
    let journalKeys = try found.map { identity throws(StoreError) in
      try JournalKeys(
        path, store: identity.id, passphrase: configuration.passphrase, environment: environment,
        writable: configuration.mode != .readOnly, openedBytes: configuration.openedRecordBytes)
    }
    if let live = StoreRegistry.shared.find(status, environment: environment) {
      guard live.configuration.mode == configuration.mode else {
        throw StoreError(
          .busy, "this process has the store open in another mode: use that instance, or close it first",
          path: path)
      }
      return live
    }
    guard let identity = found, let journalKeys else {
      throw StoreError(.notAStore, "there is no store here: create one with `Store.create`", path: path)
    }
    let store = try StoreOpener(
      path: path, identity: identity, configuration: configuration, environment: environment,
      journalKeys: journalKeys
    ).run()
    StoreRegistry.shared.remember(store, status: status)
    try store.reportDamage()
    try store.persistBlobSettings(from: configuration)
    // A failure here is retried at the next opening, and by `finishRekeying`.
    try? store.rekeyer.finishRetiringKeys()
    if store.isWritable, store.isRekeying, environment.compactionMode == .background {
      Background.runMaintenance { [weak store] in _ = try? store?.rekeyer.finish(waiting: false) }
    }
    return store
  }
}

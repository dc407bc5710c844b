import SyncStore

/// Stores the files of a tree: small ones many to a transaction, large ones each through the blob tier. A file that cannot
/// be read or stored is a failure of its own; the others are stored.
struct Importer {
  let store: Store
  let root: Descriptor
  let prefix: [UInt8]
  var progress: Progress
  private(set) var failures: ItemFailures
  /// Files that were stored, and their bytes.
  private(set) var stored = 0
  private(set) var bytes: UInt64 = 0
  /// Files whose content was there already.
  private(set) var unchanged = 0
  private var batch: [(key: Key, value: [UInt8])] = []
  private var batchBytes = 0

  /// A transaction is committed when it holds this many bytes or files.
  private static let transactionBytes = 1 << 20
  private static let transactionFiles = 500
  /// Larger files go through the blob tier by themselves.
  private static let smallFileBytes: UInt64 = 16 << 10

  init(
    store: Store, root: Descriptor, prefix: [UInt8], progress: Progress, failures: ItemFailures
  ) {
    (self.store, self.root, self.prefix) = (store, root, prefix)
    (self.progress, self.failures) = (progress, failures)
  }

  /// Stores all of `tree` that can be stored; that is durable on return.
  mutating func run(_ tree: TreeWalk) throws {
    defer { progress.finish() }
    for failure in tree.failures { try failures.record(failure) }
    if failures.isStrict {
      for file in tree.files { _ = (try TreeCommands.key(prefix + file.path), try open(file.path)) }
    }
    var done: UInt64 = 0
    do {
      for file in tree.files {
        try attempt(file.path)
        if batchBytes >= Self.transactionBytes || batch.count >= Self.transactionFiles { try commit() }
        done += file.size
        progress.update(bytes: done, "\(stored + unchanged) of \(Text.count(tree.files.count, noun: "file"))")
      }
    } catch {
      // What was read before the failure that ends it is stored.
      try? commit()
      throw error
    }
    try commit()
    try store.sync()
  }

  private mutating func attempt(_ path: [UInt8]) throws {
    do { try add(path) } catch let failure as Failure {
      try failures.record(Failure(failure.code, Self.named(failure.message)))
    } catch let error as StoreError {
      try recordFailure(path, error)
    }
  }

  private static func named(_ message: String) -> String {
    message.hasPrefix("import ") ? message : "import: \(message)"
  }

  /// Names the failure of a file. What the store can do for no file is thrown.
  private mutating func recordFailure(_ path: [UInt8], _ error: StoreError, isSmall: Bool = false) throws {
    // A store that is read-only, or full for a small value, takes no other file either.
    guard error.concernsOneItem, error.code != .readOnly, error.code != .diskFull || !isSmall else {
      throw error
    }
    try failures.record(Failure(StoreError(error, to: "import \(Text.printable(path))")))
  }

  private mutating func add(_ path: [UInt8]) throws {
    let key = try TreeCommands.key(prefix + path)
    let (source, size) = try open(path)
    // One byte more than a small file has: one that has grown since, or does not tell its size, is not cut.
    let value = size > Self.smallFileBytes ? nil : try source.readAll(limit: Int(Self.smallFileBytes) + 1)
    guard let value, value.count <= Self.smallFileBytes else { return try addLarge(path, key) }
    if try holds(key, value) {
      unchanged += 1
      return
    }
    batch.append((key, value))
    batchBytes += value.count
  }

  private mutating func addLarge(_ path: [UInt8], _ key: Key) throws {
    let (source, size) = try open(path)
    if try holds(key, source, size: size) {
      unchanged += 1
      return
    }
    // What was read to compare is read again: a descriptor of its own begins at the start.
    try store.put(key, from: try open(path).source, durability: .full)
    stored += 1
    bytes += size
  }

  /// A file as it is now: the walk was a while ago, and another may have its name.
  private func open(_ path: [UInt8]) throws(Failure) -> (source: Descriptor, size: UInt64) {
    let source: Descriptor
    do { source = try root.reading(path) } catch {
      guard error.code == .notFound else { throw error }
      throw Failure(
        .notFound,
        "import \(Text.printable(Descriptor.joined(root.path, path))): it vanished meanwhile: import again if it should be back"
      )
    }
    let (kind, size) = try source.status()
    guard kind == .file else {
      throw Failure(
        .inputOutput,
        "import \(Text.printable(source.path)): it is no regular file any more: import again when nobody changes DIR"
      )
    }
    return (source, size)
  }

  /// Is that the value of the key? It is read only if all else agrees, and never fetched: what lies elsewhere, or is
  /// damaged, is told by its hash, or not held.
  private func holds(_ key: Key, _ value: [UInt8]) throws -> Bool {
    try holds(key, size: UInt64(value.count)) { blob in
      guard let blob else { return try store.get(key)?.bytes == value }
      return SHA256.hash(value) == blob.hash.bytes
    }
  }

  /// The same for a large file, whose content is not held in memory.
  private func holds(_ key: Key, _ source: Descriptor, size: UInt64) throws -> Bool {
    try holds(key, size: size) { blob in
      guard let blob else {
        return try store.get(key)?.bytes == source.readAll(limit: Limits.inlineValueBytes + 1)
      }
      let hasher = SHA256Hasher()
      while true {
        let part = try source.read(1 << 20)
        if part.isEmpty { return hasher.finish() == blob.hash.bytes }
        hasher.update(part)
      }
    }
  }

  private func holds(_ key: Key, size: UInt64, _ isSame: (BlobReference?) throws -> Bool) throws -> Bool {
    do {
      guard let entry = try store.entry(key), entry.size == size, entry.type == .bytes, entry.deadline == nil
      else { return false }
      return try isSame(entry.blob)
    } catch let error as StoreError where [.damaged, .blobUnavailable].contains(error.code) {
      return false
    }
  }

  private mutating func commit() throws {
    let batch = batch
    self.batch = []
    batchBytes = 0
    guard !batch.isEmpty else { return }
    do { try put(batch[...]) } catch let error as StoreError where error.concernsOneItem && batch.count > 1 {
      // One of them is to blame: the others are stored without it.
      for index in batch.indices {
        do { try put(batch[index...index]) } catch let error as StoreError {
          try recordFailure(batch[index].key.bytes, error, isSmall: true)
        }
      }
    } catch let error as StoreError {
      try recordFailure(batch[0].key.bytes, error, isSmall: true)
    }
  }

  private mutating func put(_ files: ArraySlice<(key: Key, value: [UInt8])>) throws {
    try store.transaction(durability: .relaxed) { transaction in
      for (key, value) in files { try transaction.put(key, value) }
    }
    stored += files.count
    bytes += files.reduce(0) { $0 + UInt64($1.value.count) }
  }
}

import SyncStore

/// Stores the files of a tree: many small ones per transaction, large ones individually through the blob
/// tier.
///
/// A file that cannot be read or stored is reported as a failure; the others are stored.
struct Importer {
  let store: Store
  let root: Descriptor
  let prefix: [UInt8]
  var progress: Progress
  private(set) var failures: ItemFailures
  /// Number of files stored, and their bytes.
  private(set) var stored = 0
  private(set) var bytes: UInt64 = 0
  /// Files whose content was already stored.
  private(set) var unchanged = 0
  /// Receives each key that would be stored. With it nothing is stored.
  var preview: ((Key) throws -> Void)?
  private var batch: [(key: Key, value: [UInt8])] = []
  private var batchBytes = 0

  /// A transaction is committed at this many bytes or files.
  private static let transactionBytes = 1 << 20
  private static let transactionFiles = 500
  /// Larger files are stored individually, through the blob tier.
  private static let smallFileBytes: UInt64 = 16 << 10

  init(
    store: Store, root: Descriptor, prefix: [UInt8], progress: Progress, failures: ItemFailures
  ) {
    (self.store, self.root, self.prefix) = (store, root, prefix)
    (self.progress, self.failures) = (progress, failures)
  }

  /// Stores all of `tree` that can be stored, durably on return.
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
      // Files read before the fatal error are stored.
      try? commit()
      throw error
    }
    try commit()
    if preview == nil { try store.sync() }
  }

  private mutating func attempt(_ path: [UInt8]) throws {
    do { try add(path) } catch let failure as Failure where !failure.endsCommand {
      try failures.record(Failure(failure.code, Self.named(failure.message)))
    } catch let error as StoreError {
      try recordFailure(path, error)
    }
  }

  private static func named(_ message: String) -> String {
    message.hasPrefix("import ") ? message : "import: \(message)"
  }

  /// Records the failure of a file. Errors that every file would meet are thrown.
  private mutating func recordFailure(_ path: [UInt8], _ error: StoreError, isSmall: Bool = false) throws {
    // A store that is read-only, or too full for a small value, accepts no other file either.
    guard error.concernsOneItem, error.code != .readOnly, error.code != .diskFull || !isSmall else {
      throw error
    }
    try failures.record(Failure(StoreError(error, to: "import \(Text.printable(path))")))
  }

  private mutating func add(_ path: [UInt8]) throws {
    let key = try TreeCommands.key(prefix + path)
    let (source, size) = try open(path)
    // One byte more than the limit: a file that has grown, or does not report its size, is not truncated.
    let value = size > Self.smallFileBytes ? nil : try source.readAll(limit: Int(Self.smallFileBytes) + 1)
    guard let value, value.count <= Self.smallFileBytes else { return try addLarge(path, key) }
    if try holds(key, value) {
      unchanged += 1
      return
    }
    if let preview {
      try preview(key)
      (stored, bytes) = (stored + 1, bytes + UInt64(value.count))
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
    if let preview {
      try preview(key)
    } else {
      // The content was read for the comparison: reopen the file to read from its start.
      try store.put(key, from: try open(path).source, durability: .full)
    }
    stored += 1
    bytes += size
  }

  /// Opens a file and checks it again: since the walk, another may have taken its name.
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
        "import \(Text.printable(source.path)): it is no longer a regular file: import again while no program changes DIR"
      )
    }
    return (source, size)
  }

  /// Whether the key already has this value. It is read only if all else matches, and never fetched: a value
  /// that is evicted or damaged is compared by its hash, or counts as different.
  private func holds(_ key: Key, _ value: [UInt8]) throws -> Bool {
    try holds(key, size: UInt64(value.count)) { blob in
      guard let blob else { return try store.get(key)?.bytes == value }
      return SHA256.hash(value) == blob.hash.bytes
    }
  }

  /// Whether the key already has the content of a large file, which is not read into memory.
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
      // One item caused the failure: store the others individually.
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

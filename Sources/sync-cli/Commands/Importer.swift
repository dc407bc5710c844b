import SyncStore

/// Stores the files of a tree: small ones many to a transaction, large ones each through the blob tier.
struct Importer {
  let store: Store
  let root: Descriptor
  let prefix: [UInt8]
  var progress: Progress
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

  init(store: Store, root: Descriptor, prefix: [UInt8], progress: Progress) {
    (self.store, self.root, self.prefix, self.progress) = (store, root, prefix, progress)
  }

  /// Stores all of `tree`; all is durable on return.
  mutating func run(_ tree: TreeWalk) throws {
    defer { progress.finish() }
    var done: UInt64 = 0
    for file in tree.files {
      try add(file)
      done += file.size
      progress.update(bytes: done, "\(stored + unchanged) of \(Text.count(tree.files.count, "file"))")
    }
    try commit()
    try store.sync()
  }

  private mutating func add(_ file: TreeWalk.File) throws {
    let key = try TreeCommands.key(prefix + file.path)
    let source = try root.reading(file.path)
    if file.size > Self.smallFileBytes {
      if try holds(key, source, size: file.size) {
        unchanged += 1
      } else {
        // What was read to compare is read again: a descriptor of its own begins at the start.
        try store.put(key, from: try root.reading(file.path), durability: .full)
        stored += 1
        bytes += file.size
      }
      return
    }
    let value = try source.readAll(limit: Limits.inlineValueBytes)
    if try holds(key, value) {
      unchanged += 1
      return
    }
    batch.append((key, value))
    batchBytes += value.count
    if batchBytes >= Self.transactionBytes || batch.count >= Self.transactionFiles { try commit() }
  }

  private func holds(_ key: Key, _ value: [UInt8]) throws -> Bool {
    guard let held = try store.get(key) else { return false }
    return held.bytes == value && held.type == .bytes && held.deadline == nil
  }

  /// The same for a large file, whose content is not held in memory.
  private func holds(_ key: Key, _ source: Descriptor, size: UInt64) throws -> Bool {
    guard let entry = try store.entry(key), entry.size == size, entry.type == .bytes, entry.deadline == nil
    else {
      return false
    }
    guard let blob = entry.blob else {
      return try holds(key, try source.readAll(limit: Limits.inlineValueBytes))
    }
    let hasher = SHA256Hasher()
    while true {
      let part = try source.read(1 << 20)
      if part.isEmpty { return hasher.finish() == blob.hash.bytes }
      hasher.update(part)
    }
  }

  private mutating func commit() throws {
    guard !batch.isEmpty else { return }
    let batch = batch
    try store.transaction(durability: .relaxed) { transaction in
      for (key, value) in batch { try transaction.put(key, value) }
    }
    stored += batch.count
    bytes += UInt64(batchBytes)
    self.batch = []
    batchBytes = 0
  }
}

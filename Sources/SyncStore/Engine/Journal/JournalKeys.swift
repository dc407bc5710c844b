private import Synchronization

/// The keys of one opening of a store, and the keys derived for its segments. Every open store has an
/// instance; that of an unencrypted store is empty and costs nothing.
///
/// Invariants: an opening has an epoch of its own, drawn when it first maps an encrypted segment; the key
/// ring in memory is one that was in the file at some time; a segment begins only under the ring that is in
/// the file at that moment.
final class JournalKeys: Sendable {
  private let store: StoreID
  /// The key file.
  let path: String
  private let environment: Environment
  private let writable: Bool
  private let state: LockedField<State>
  /// Cache of recently decrypted records; nil if there is none.
  let decryptedRecords: DecryptedRecordCache?

  private struct State {
    var ring: KeyRing? { didSet { blobKeys = nil } }
    /// The blob tier's keys, derived from the ring at first use.
    var blobKeys: BlobKeys?
    /// Content of the file that the ring was read from.
    var bytes: [UInt8]?
    /// Why it is unknown whether the file is durable (rule R4).
    var failure: StoreError?
    var epoch: [UInt8]?
  }

  /// The directory of the key file, in the store's directory.
  static let directory = "keys"
  private static let name = "keys/ring"

  /// The keys of the store in the directory `path`, unlocked by `passphrase` if there are any.
  ///
  /// - Throws: `.keyRequired`, `.wrongKey`, `.notEncrypted`, `.damaged` …; then nothing has changed.
  init(
    _ path: String, store: StoreID, passphrase: Passphrase?, environment: Environment, writable: Bool,
    openedBytes: Int = 0
  ) throws(StoreError) {
    decryptedRecords = DecryptedRecordCache(bytes: openedBytes)
    (self.store, self.environment, self.writable) = (store, environment, writable)
    self.path = path + "/" + Self.name
    let bytes = try environment.storage.contents(of: self.path, limit: KeyRingFile.limit)
    if writable { try Self.makeDurable(self.path, environment.storage) }
    switch (bytes, passphrase) {
    case (nil, nil): state = LockedField(State())
    case (let bytes?, let passphrase?):
      let file = self.path
      let ring = try passphrase.tryingBothForms { secret, derive throws(StoreError) in
        try KeyRingFile.unlock(bytes, passphrase: secret, path: file, derive: derive)
      }
      guard ring.store == store else {
        throw StoreError(
          .foreignFile, "belongs to store \(ring.store): restore the one of this store", path: self.path)
      }
      state = LockedField(State(ring: ring, bytes: bytes))
    case (nil, _?):
      throw StoreError(
        .notEncrypted, "the store is not encrypted: open it without a passphrase, or encrypt it first",
        path: path)
    case (_?, nil): throw Self.keyRequired(path)
    }
  }

  private init(_ path: String, store: StoreID, _ environment: Environment) {
    (self.store, self.environment, writable, decryptedRecords) = (store, environment, true, nil)
    self.path = path + "/" + Self.name
    state = LockedField(State())
  }

  /// Keys for a store that is being created: with a new ring if a passphrase is given.
  static func create(
    _ path: String, store: StoreID, passphrase: Passphrase?, cost: Scrypt.Parameters,
    environment: Environment
  ) throws(StoreError) -> JournalKeys {
    let keys = JournalKeys(path, store: store, environment)
    guard let passphrase else {
      // A creation that was killed may have left a ring.
      try keys.replace(nil)
      return keys
    }
    try keys.replace(
      try keys.newRing(passphrase, cost, first: 1, acceptsPlain: false))
    return keys
  }

  /// A new key ring for a store that has none.
  func newRing(
    _ passphrase: Passphrase, _ cost: Scrypt.Parameters, first: UInt32, acceptsPlain: Bool
  ) throws(StoreError) -> KeyRing {
    try passphrase.check()
    guard
      let ring = KeyRing(
        store: store, passphrase: passphrase.secret, cost: cost, generation: first,
        acceptsPlain: acceptsPlain, random: environment.random)
    else { throw noMemory }
    return ring
  }

  var noMemory: StoreError {
    StoreError(
      .inputOutput, "there is no memory to derive a key from the passphrase: free some", path: path)
  }

  /// True if the store in the directory `path` has keys.
  static func isThere(_ path: String, _ storage: any Storage) throws(StoreError) -> Bool {
    try storage.status(path + "/" + name) != nil
  }

  private static func keyRequired(_ path: String) -> StoreError {
    StoreError(.keyRequired, "the store is encrypted: open it with its passphrase", path: path)
  }

  /// The keys; nil for an unencrypted store.
  var ring: KeyRing? { state.withLock { $0.ring } }

  /// Keys that encrypt the blob tier; nil for an unencrypted store.
  var blobKeys: BlobKeys? {
    state.withLock { state in
      guard state.blobKeys == nil, let ring = state.ring else { return state.blobKeys }
      let keys = BlobKeys(ring)
      state.blobKeys = keys
      return keys
    }
  }

  /// True if appends must reserve the extra bytes of encrypted records.
  var isEncrypted: Bool { state.withLock { $0.ring != nil } }

  /// The 16 bytes that key the hashes of the index, constant for the life of the encrypted store; nil for an
  /// unencrypted one.
  var indexSecret: [UInt8]? {
    // Check first instead of mapping nil: the runtime would make a type for it at each process's first
    // opening.
    isEncrypted ? ring?.derived(16, for: "syncstore index v1") : nil
  }

  // MARK: Segments

  /// The cipher of the segment with this header; nil for an unencrypted segment.
  ///
  /// - Throws: `.wrongKey` or `.keyRequired` if this process does not have its key; `.foreignFile` if the
  ///   segment is unencrypted and the store is encrypted.
  func cipher(for header: SegmentHeader, path: String) throws(StoreError) -> SegmentCipher? {
    if let cached = cachedCipher(header) { return cached.value }
    // Another process may have changed the keys since.
    try refresh()
    if let cached = cachedCipher(header) { return cached.value }
    guard header.generation > 0 else {
      throw StoreError(
        .foreignFile, "is not encrypted, though the store is: it was put here; move it away", path: path)
    }
    guard isEncrypted else {
      throw StoreError(
        .damaged, "is encrypted, and the key file is missing: restore \(Self.name) from a backup", path: path)
    }
    throw StoreError(
      .wrongKey,
      "is encrypted under generation \(header.generation), which the key file does not have: "
        + "restore \(Self.name) from a backup", path: path)
  }

  private struct CachedCipher {
    var value: SegmentCipher?
  }

  private func cachedCipher(_ header: SegmentHeader) -> CachedCipher? {
    let random = environment.random
    let (writable, opened) = (writable, decryptedRecords)
    return state.withLock { state in
      if header.generation == 0 {
        return state.ring.map(\.acceptsPlain) ?? true ? CachedCipher(value: nil) : nil
      }
      guard let master = state.ring?.masters[header.generation] else { return nil }
      let epoch = state.epoch ?? (writable ? random(EncryptedRecordLayout.epochBytes) : [])
      state.epoch = epoch
      return CachedCipher(
        value: SegmentCipher(header: header, master: master, epoch: epoch, opened: opened))
    }
  }

  /// The key generation for a segment that begins now.
  func generationToBegin() throws(StoreError) -> UInt32 {
    try refresh()
    return state.withLock { $0.ring?.current ?? 0 }
  }

  // MARK: Key file

  /// Reads the file again if it has changed since it was read.
  func refresh() throws(StoreError) {
    let (path, storage) = (path, environment.storage)
    // Read and apply under one lock: otherwise a ring that another thread stores in between would be lost.
    try state.withLock { state throws(StoreError) in
      let bytes = try storage.contents(of: path, limit: KeyRingFile.limit)
      guard bytes != state.bytes else { return }
      let ring = try updated(state.ring, from: bytes)
      if let failure = state.failure { throw failure }
      if writable {
        do throws(StoreError) { try Self.makeDurable(path, storage) } catch {
          state.failure = error
          throw error
        }
      }
      (state.ring, state.bytes) = (ring, bytes)
    }
  }

  private func updated(_ ring: KeyRing?, from bytes: [UInt8]?) throws(StoreError) -> KeyRing? {
    guard let bytes else {
      // Nothing is encrypted any more: what applied to unencrypted segments holds for all.
      guard ring?.acceptsPlain ?? true else {
        throw StoreError(.damaged, "is gone: restore it from a backup", path: path)
      }
      return nil
    }
    guard let ring else { throw Self.keyRequired(path) }
    guard let updated = try ring.updated(from: bytes, path: path) else {
      throw StoreError(
        .wrongKey, "the keys were changed by another process: open the store again", path: path)
    }
    return updated
  }

  /// Makes a replacement or removal durable that another process may not have finished: a segment begun under
  /// the new keys would be lost with it, and an older file needs another passphrase, or one at all.
  private static func makeDurable(_ path: String, _ storage: any Storage) throws(StoreError) {
    let directory = type(of: storage).directory(of: path)
    guard try storage.status(directory) != nil else { return }
    try storage.syncDirectoryAndParent(directory)
  }

  /// Replaces the key ring durably; nil removes it. Only for the holder of the compaction lock.
  func replace(_ ring: KeyRing?) throws(StoreError) {
    let (path, storage) = (path, environment.storage)
    let directory = type(of: storage).directory(of: path)
    let bytes = ring?.encoded(random: environment.random)
    try state.withLock { state throws(StoreError) in
      if let bytes {
        // The directory may exist already, made by a process that was killed afterwards.
        _ = try storage.createDirectory(directory)
        try storage.syncDirectory(type(of: storage).directory(of: directory))
        try storage.replace(path, with: bytes)
      } else if try storage.remove(path) {
        try storage.syncDirectory(directory)
      }
      (state.ring, state.bytes) = (ring, bytes)
    }
  }
}

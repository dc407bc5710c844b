private import Synchronization

/// The keys of one opening of a store, and what follows from them for its segments. Every open store has one; that of a
/// plain store holds nothing and costs nothing.
///
/// Invariants: an opening has an epoch of its own, drawn when the first sealed segment is met; the ring that is held is one
/// that was in the file at some time; a segment is begun only under the ring that the file holds then.
final class JournalKeys: Sendable {
  private let store: StoreID
  /// The key file.
  let path: String
  private let environment: Environment
  private let writable: Bool
  private let state: LockedField<State>
  /// What threads have read lately; nil if that is not kept.
  let decryptedRecords: DecryptedRecordCache?

  private struct State {
    var ring: KeyRing? { didSet { blobKeys = nil } }
    /// What follows from it for the blob tier, once that was asked for.
    var blobKeys: BlobKeys?
    /// The file that it was read from.
    var bytes: [UInt8]?
    /// Why it is not known that the file lasts (rule R4).
    var failure: StoreError?
    var epoch: [UInt8]?
  }

  /// The name of the key file in the store's directory.
  static let directory = "keys"
  private static let name = "keys/ring"

  /// The keys of the store in the directory `path`, unlocked by `passphrase` if there are any.
  ///
  /// - Throws: `.keyRequired`, `.wrongKey`, `.notEncrypted`, `.damaged` …; nothing was changed then.
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
      let ring = try passphrase.tryingBothForms { secret throws(StoreError) in
        try KeyRingFile.unlock(bytes, passphrase: secret, path: file)
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

  /// That of a store that is being created: with a new ring if a passphrase is given.
  static func create(
    _ path: String, store: StoreID, _ configuration: Configuration, _ environment: Environment
  ) throws(StoreError) -> JournalKeys {
    let seal = JournalKeys(path, store: store, environment)
    guard let passphrase = configuration.passphrase else {
      // A creation that was killed may have left one.
      try seal.replace(nil)
      return seal
    }
    try seal.replace(
      try seal.newRing(passphrase, configuration.passphraseCost, first: 1, acceptsPlain: false))
    return seal
  }

  /// Keys for a store that has none.
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

  /// Has the store in the directory `path` keys?
  static func isThere(_ path: String, _ storage: any Storage) throws(StoreError) -> Bool {
    try storage.status(path + "/" + name) != nil
  }

  private static func keyRequired(_ path: String) -> StoreError {
    StoreError(.keyRequired, "the store is encrypted: open it with its passphrase", path: path)
  }

  /// The keys; nil for a plain store.
  var ring: KeyRing? { state.withLock { $0.ring } }

  /// What the blob tier is sealed with; nil for a plain store.
  var blobKeys: BlobKeys? {
    state.withLock { state in
      guard state.blobKeys == nil, let ring = state.ring else { return state.blobKeys }
      let keys = BlobKeys(ring)
      state.blobKeys = keys
      return keys
    }
  }

  /// Does anything that is written take the room of what is sealed?
  var isEncrypted: Bool { state.withLock { $0.ring != nil } }

  /// What the hashes of the index are keyed by, 16 bytes that stay for the life of the encrypted store; nil for a plain one.
  var indexSecret: [UInt8]? {
    // Not a copy of no keys: the runtime would make a type for it at each process's first opening.
    isEncrypted ? ring?.derived(16, for: "syncstore index v1") : nil
  }

  // MARK: Segments

  /// What seals the segment with this header; nil for a plain one.
  ///
  /// - Throws: `.wrongKey` or `.keyRequired` if this process does not have its key; `.foreignFile` if it is plain and the
  ///   store is not.
  func cipher(for header: SegmentHeader, path: String) throws(StoreError) -> SegmentCipher? {
    if let seal = cachedCipher(header) { return seal.value }
    // Another process may have changed the keys since.
    try refresh()
    if let seal = cachedCipher(header) { return seal.value }
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

  /// The generation that a segment is to have that begins now.
  func generationToBegin() throws(StoreError) -> UInt32 {
    try refresh()
    return state.withLock { $0.ring?.current ?? 0 }
  }

  // MARK: The file

  /// Reads the file again if it is not the one that was read.
  func refresh() throws(StoreError) {
    let (path, storage) = (path, environment.storage)
    // Read and taken over at once: else what another thread has put there meanwhile would be forgotten.
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
      // Nothing is sealed any more: what was said of plain segments holds for all.
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

  /// Makes durable what another process may have put there, or removed, and not come to the end of: a segment that is begun under its
  /// keys would be lost with it, and an older file asks for another passphrase, or for one at all.
  private static func makeDurable(_ path: String, _ storage: any Storage) throws(StoreError) {
    let directory = type(of: storage).directory(of: path)
    guard try storage.status(directory) != nil else { return }
    try storage.syncDirectoryAndParent(directory)
  }

  /// Puts a ring in the place of the one there is, durably; nil removes it. Only for who holds the compaction lock.
  func replace(_ ring: KeyRing?) throws(StoreError) {
    let (path, storage) = (path, environment.storage)
    let directory = type(of: storage).directory(of: path)
    let bytes = ring?.encoded(random: environment.random)
    try state.withLock { state throws(StoreError) in
      if let bytes {
        // One that is there may have been made by who was killed then.
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

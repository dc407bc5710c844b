/// Encryption, imports, inspection and settings of a store, for asynchronous code.
extension AsyncStore {
  // MARK: Encryption

  /// Changes the passphrase. As `Store.changePassphrase`.
  public func changePassphrase(to passphrase: Passphrase) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.changePassphrase(to: passphrase) }
  }

  /// Rewrites everything under a new master key. As `Store.renewKeys`.
  @discardableResult
  public func renewKeys() async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.renewKeys() }
  }

  /// Encrypts an unencrypted store. As `Store.encrypt`.
  @discardableResult
  public func encrypt(with passphrase: Passphrase) async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.encrypt(with: passphrase) }
  }

  /// Decrypts an encrypted store. As `Store.decrypt`.
  @discardableResult
  public func decrypt() async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.decrypt() }
  }

  /// Resumes an interrupted re-keying. As `Store.finishRekeying`.
  @discardableResult
  public func finishRekeying() async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.finishRekeying() }
  }

  // MARK: Import and migration

  /// Imports the keys that another store, or a snapshot of one, has in a range. As `Store.importAll(from:)`.
  ///
  /// - Parameter unreadable: called for each key whose value cannot be read, on the thread that does the
  ///   work; if it returns, the key is skipped.
  /// - Throws: as `Store.importAll(from:)`; `.cancelled`.
  @discardableResult
  public func importAll(
    from other: some ReadableStore, _ range: KeyRange = .all, conflict: ImportConflict = .replace,
    unreadable: @escaping @Sendable (Key, StoreError) throws -> Void = { throw $1 }
  ) async throws -> ImportReport {
    try await withStore { store in
      try store.importAll(from: other, range, conflict: conflict, unreadable: unreadable)
    }
  }

  /// Imports the keys that another asynchronous store has in a range. As `Store.importAll(from:)`.
  @discardableResult
  public func importAll(
    from other: AsyncStore, _ range: KeyRange = .all, conflict: ImportConflict = .replace,
    unreadable: @escaping @Sendable (Key, StoreError) throws -> Void = { throw $1 }
  ) async throws -> ImportReport {
    try await importAll(from: other.store, range, conflict: conflict, unreadable: unreadable)
  }

  /// Imports each key of an MMKV file (`MMKVFile.read`). As `Store.importAll(from:prefix:conflict:kind:)`.
  @discardableResult
  public func importAll(
    from file: MMKVFile, prefix: String = "", conflict: ImportConflict = .replace,
    kind: @escaping @Sendable (String) -> MMKVKind
  ) async throws -> ImportReport {
    try await withStore { try $0.importAll(from: file, prefix: prefix, conflict: conflict, kind: kind) }
  }

  /// Imports each key of a property list. As `Store.importAll(fromPropertyListAt:)`.
  @discardableResult
  public func importAll(
    fromPropertyListAt path: String, prefix: String = "", conflict: ImportConflict = .replace
  ) async throws -> ImportReport {
    try await withStore { try $0.importAll(fromPropertyListAt: path, prefix: prefix, conflict: conflict) }
  }

  // MARK: Inspection

  /// Records of the journal from `position` on, at most `limit`. As `Store.log`.
  public func log(from position: UInt64, limit: Int) async throws(StoreError) -> [LogEntry] {
    try await perform { () throws(StoreError) in try store.log(from: position, limit: limit) }
  }

  /// Explains how a key got its present value; nil if nothing is known of the key. As `Store.explain`.
  public func explain(_ key: Key) async throws(StoreError) -> Explanation? {
    try await perform { () throws(StoreError) in try store.explain(key) }
  }

  /// The actor of the copy that sent a received write. As `Store.origin`.
  public func origin(of entry: LogEntry) async throws(StoreError) -> ActorID? {
    try await perform { () throws(StoreError) in try store.origin(of: entry) }
  }

  /// Concurrent values that lost and are kept, newest first. As `Store.conflicts`.
  public func conflicts() async throws(StoreError) -> [LogEntry] {
    try await perform { () throws(StoreError) in try store.conflicts() }
  }

  /// Restores a value that lost, by a new write. As `Store.restore`.
  public func restore(_ beaten: LogEntry) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.restore(beaten) }
  }

  /// The digest of all live records. As `Store.digest`.
  public func digest() async throws(StoreError) -> StateDigest {
    try await perform { () throws(StoreError) in try store.digest() }
  }

  /// Counts, sizes and positions. As `Store.status`.
  public func status() async throws(StoreError) -> StoreStatus {
    try await perform { () throws(StoreError) in try store.status() }
  }

  /// Large values that are not on this copy, and why. As `Store.absentValues`.
  public func absentValues() async throws(StoreError) -> AbsentValues {
    try await perform { () throws(StoreError) in try store.absentValues() }
  }

  /// Result and time, in milliseconds since 1970, of the last attempt to keep the limits of large values. As
  /// `Store.lastBlobTrim`.
  public func lastBlobTrim() async throws(StoreError) -> (time: UInt64, report: BlobTrimReport)? {
    try await perform { () throws(StoreError) in try store.lastBlobTrim() }
  }

  /// Sets which large values this copy fetches. As `Store.setBlobPolicy`.
  public func setBlobPolicy(_ policy: BlobPolicy) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.setBlobPolicy(policy) }
  }

  /// Sets how much of the large values this copy keeps. As `Store.setBlobLimits`.
  public func setBlobLimits(_ limits: BlobLimits) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.setBlobLimits(limits) }
  }

  /// Gives the present time to writes stamped while the clock ran ahead. As `Store.restampUnsent`.
  @discardableResult
  public func restampUnsent() async throws(StoreError) -> Store.RestampReport {
    try await perform { () throws(StoreError) in try store.restampUnsent() }
  }
}

extension MMKVFile {
  /// Reads a file on a thread that may block, as `init(path:cryptKey:)` does.
  ///
  /// - Parameter cryptKey: the key of an encrypted file; at most 16 bytes count.
  /// - Throws: as `init`; `.cancelled`.
  public static func read(
    path: String, cryptKey: [UInt8]? = nil, cipher: Cipher? = nil
  ) async throws(StoreError) -> MMKVFile {
    try await AsyncStore.perform { () throws(StoreError) in
      try MMKVFile(path: path, cryptKey: cryptKey, cipher: cipher)
    }
  }
}

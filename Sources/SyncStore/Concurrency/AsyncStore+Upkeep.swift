/// Keys of encrypted stores, what comes from elsewhere, and looking at a store from outside its values.
extension AsyncStore {
  // MARK: Encryption

  /// Asks for another passphrase from now on. As `Store.changePassphrase`.
  public func changePassphrase(to passphrase: Passphrase) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.changePassphrase(to: passphrase) }
  }

  /// Writes all anew under a new master key. As `Store.renewKeys`.
  @discardableResult
  public func renewKeys() async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.renewKeys() }
  }

  /// Encrypts a plain store. As `Store.encrypt`.
  @discardableResult
  public func encrypt(with passphrase: Passphrase) async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.encrypt(with: passphrase) }
  }

  /// Makes an encrypted store a plain one. As `Store.decrypt`.
  @discardableResult
  public func decrypt() async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.decrypt() }
  }

  /// Goes on with a re-keying that was interrupted. As `Store.finishRekeying`.
  @discardableResult
  public func finishRekeying() async throws(StoreError) -> Store.RekeyingReport {
    try await perform { () throws(StoreError) in try store.finishRekeying() }
  }

  // MARK: Coming from elsewhere

  /// Sets each key that another store, or a snapshot of one, has in a range. As `Store.importAll(from:)`.
  ///
  /// - Parameter unreadable: hears of keys whose value cannot be read, on the thread that does the work; when
  ///   it returns they are passed over.
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

  /// The same from a store for asynchronous code.
  @discardableResult
  public func importAll(
    from other: AsyncStore, _ range: KeyRange = .all, conflict: ImportConflict = .replace,
    unreadable: @escaping @Sendable (Key, StoreError) throws -> Void = { throw $1 }
  ) async throws -> ImportReport {
    try await importAll(from: other.store, range, conflict: conflict, unreadable: unreadable)
  }

  /// Sets a key for each of an MMKV file (`MMKVFile.read`). As `Store.importAll(from:prefix:conflict:kind:)`.
  @discardableResult
  public func importAll(
    from file: MMKVFile, prefix: String = "", conflict: ImportConflict = .replace,
    kind: @escaping @Sendable (String) -> MMKVKind
  ) async throws -> ImportReport {
    try await withStore { try $0.importAll(from: file, prefix: prefix, conflict: conflict, kind: kind) }
  }

  /// Sets a key for each of a property list's. As `Store.importAll(fromPropertyListAt:)`.
  @discardableResult
  public func importAll(
    fromPropertyListAt path: String, prefix: String = "", conflict: ImportConflict = .replace
  ) async throws -> ImportReport {
    try await withStore { try $0.importAll(fromPropertyListAt: path, prefix: prefix, conflict: conflict) }
  }

  // MARK: From outside

  /// Records of the journal from `position` on, at most `limit`. As `Store.log`.
  public func log(from position: UInt64, limit: Int) async throws(StoreError) -> [LogEntry] {
    try await perform { () throws(StoreError) in try store.log(from: position, limit: limit) }
  }

  /// Why a key has the value it has; nil if nothing is known of it. As `Store.explain`.
  public func explain(_ key: Key) async throws(StoreError) -> Explanation? {
    try await perform { () throws(StoreError) in try store.explain(key) }
  }

  /// From whom a received write came. As `Store.origin`.
  public func origin(of entry: LogEntry) async throws(StoreError) -> ActorID? {
    try await perform { () throws(StoreError) in try store.origin(of: entry) }
  }

  /// Beaten concurrent values that are kept, newest first. As `Store.conflicts`.
  public func conflicts() async throws(StoreError) -> [LogEntry] {
    try await perform { () throws(StoreError) in try store.conflicts() }
  }

  /// Writes a beaten value again as a new write. As `Store.restore`.
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

  /// Which large values are not here, and why. As `Store.absentValues`.
  public func absentValues() async throws(StoreError) -> AbsentValues {
    try await perform { () throws(StoreError) in try store.absentValues() }
  }

  /// Result and time, in milliseconds since 1970, of the last attempt to keep the limits of large values. As
  /// `Store.lastBlobTrim`.
  public func lastBlobTrim() async throws(StoreError) -> (time: UInt64, report: BlobTrimReport)? {
    try await perform { () throws(StoreError) in try store.lastBlobTrim() }
  }

  /// Says which large values this copy takes from now on. As `Store.setBlobPolicy`.
  public func setBlobPolicy(_ policy: BlobPolicy) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.setBlobPolicy(policy) }
  }

  /// Says how much of the large values this copy keeps from now on. As `Store.setBlobLimits`.
  public func setBlobLimits(_ limits: BlobLimits) async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.setBlobLimits(limits) }
  }

  /// Gives what was written while the clock ran ahead the present time. As `Store.restampUnsent`.
  @discardableResult
  public func restampUnsent() async throws(StoreError) -> Store.RestampReport {
    try await perform { () throws(StoreError) in try store.restampUnsent() }
  }
}

extension MMKVFile {
  /// Reads a file on a thread that may block: what `init(path:cryptKey:)` does, for asynchronous code.
  ///
  /// - Parameter cryptKey: of an encrypted one, its key: at most 16 bytes count.
  /// - Throws: as `init`; `.cancelled`.
  public static func read(
    path: String, cryptKey: [UInt8]? = nil, cipher: Cipher? = nil
  ) async throws(StoreError) -> MMKVFile {
    try await AsyncStore.perform { () throws(StoreError) in
      try MMKVFile(path: path, cryptKey: cryptKey, cipher: cipher)
    }
  }
}

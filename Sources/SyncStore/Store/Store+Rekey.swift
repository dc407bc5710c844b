/// Encryption: its state, and changing it.
extension Store {
  /// Whether the store in the directory `path` must be opened with a passphrase. False if there is no store.
  ///
  /// - Throws: `.inputOutput` if the directory cannot be read.
  public static func isEncrypted(at path: String) throws(StoreError) -> Bool {
    try JournalKeys.isThere(path, Environment.real().storage)
  }

  /// Whether anything in the journal is encrypted, or will be.
  public var isEncrypted: Bool { journalKeys.isEncrypted }

  /// Whether a re-keying is under way or was interrupted. `finishRekeying` resumes it.
  public var isRekeying: Bool { journalKeys.ring?.isInTransition ?? false }

  /// The result of a re-keying.
  public struct RekeyingReport: Hashable, Sendable {
    /// Segments that were rewritten.
    public var rewritten = 0
    /// Segments that could not be rewritten because they are damaged: their keys are kept.
    public var damaged = 0
    /// Large values that were rewritten.
    public var blobs = 0
    /// Whether the key file holds only keys in use from now on.
    ///
    /// It keeps the older keys as long as another process has the store open, which may know only those. The
    /// next process to open the store after that removes them.
    public var isComplete = false

    /// A report of a re-keying that rewrote nothing.
    package init(isComplete: Bool = false) { self.isComplete = isComplete }
  }

  /// Changes the passphrase, effective immediately. Takes the same time whatever the store holds; processes
  /// that have it open are not affected.
  ///
  /// - Throws: `.notEncrypted`; `.wrongKey` if another process has changed it since this one opened the
  ///   store; `.busy` within a transaction of this thread.
  public func changePassphrase(to passphrase: Passphrase) throws(StoreError) {
    try rekeyer.changePassphrase(to: passphrase)
  }

  /// Encrypts everything written from now on under a new master key, and rewrites existing data under it.
  ///
  /// - Throws: `.notEncrypted`; `.diskFull` if there is no room for a copy of a segment: free space and call
  ///   `finishRekeying`.
  @discardableResult
  public func renewKeys() throws(StoreError) -> RekeyingReport {
    try rekeyer.renewKeys()
  }

  /// Encrypts a store that is not encrypted. Other processes that have it open must open it again, with the
  /// passphrase.
  ///
  /// - Throws: `.alreadyExists` if it is encrypted.
  @discardableResult
  public func encrypt(with passphrase: Passphrase) throws(StoreError) -> RekeyingReport {
    try rekeyer.encrypt(with: passphrase)
  }

  /// Decrypts the store.
  ///
  /// - Throws: `.notEncrypted`.
  @discardableResult
  public func decrypt() throws(StoreError) -> RekeyingReport {
    try rekeyer.decrypt()
  }

  /// Resumes an interrupted re-keying; does nothing if there is none.
  ///
  /// - Throws: `.diskFull` if there is no room for a copy of a segment: it can be called again; `.readOnly`,
  ///   `.closed`, `.forked`.
  @discardableResult
  public func finishRekeying() throws(StoreError) -> RekeyingReport { try rekeyer.finish(waiting: true) }
}

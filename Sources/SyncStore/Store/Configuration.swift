/// When a write survives a loss of power. The death of the process alone never loses an acknowledged write.
public enum Durability: Hashable, Sendable {
  /// Durable before the call returns; concurrent writers share one sync.
  case full
  /// Acknowledged at once, synced at most this many milliseconds later.
  case interval(milliseconds: Int)
  /// Acknowledged at once; synced when the kernel writes it back, by `sync()`, or before the record is sent
  /// to a peer.
  case relaxed
}

/// How a store is opened.
public struct Configuration: Sendable {
  /// Whether other processes may use the directory at the same time, and whether this one writes.
  public enum Mode: Hashable, Sendable {
    /// This process alone; others get `busy`.
    case exclusive
    /// Any number of processes that use this mode.
    case shared
    /// Like `shared`, but without writing.
    case readOnly
  }

  /// Whether other processes may use the directory at the same time, and whether this one writes.
  public var mode: Mode
  /// Durability of writes that do not give their own.
  public var durability: Durability
  /// Values above this many bytes go to the blob tier; at most `Limits.inlineValueBytes`.
  public var blobThreshold: Int
  /// Journal segments double from 1 MiB up to this many bytes; 64 KiB to 1 GiB.
  public var segmentBytes: Int
  /// Whether the process handles signals that would otherwise end it while it uses store files; true by
  /// default, process-wide.
  ///
  /// - SIGBUS in a mapped file of a store (another program truncated it, its disk failed, a page found no
  ///   space) becomes a `StoreError`. The handler is installed when the first file is mapped and passes every
  ///   other fault to the handler installed before it; a handler that the process installs later must do the
  ///   same.
  /// - SIGXFSZ is ignored if the process has a limit on file sizes (`ulimit -f`) when a store is opened and
  ///   has not asked for that signal: a write above the limit is then `.diskFull`.
  ///
  /// An embedder that handles these signals itself sets this to false for all its stores.
  public var handlesSignals: Bool
  /// Whether a store on a network file system may be opened; refused by default, because locks and mapped
  /// memory are not reliable between machines. Set it only for a store that is used from this machine alone.
  public var allowsNetworkFileSystem: Bool
  /// Opens an encrypted store, or creates the new store encrypted; nil for an unencrypted one. Never printed
  /// or logged.
  public var passphrase: Passphrase?
  /// Bytes of recently read values of an encrypted store that are kept decrypted in memory; 0, the default,
  /// for none.
  ///
  /// Without this cache each read decrypts the value again. It is shared by all threads of the process and
  /// never out of date, whichever process writes. It is emptied when the store is closed, by `purgeMemory`,
  /// and when the machine is short of memory (`MemoryPressure`).
  public var openedRecordBytes = 0
  /// How long a value put without an expiration lasts; nil, the default, if it does not expire.
  ///
  /// `.never` overrides it for one value. It belongs to this opening: other processes and copies have their
  /// own. Each put starts the time anew, so a `putIfChanged` without an expiration always has something to
  /// change.
  public var defaultLifetime: Lifetime?
  /// Called once if the store being opened has damage below the durable offset; without it, the rest is
  /// served.
  ///
  /// It runs on the opening thread. It may open other stores, but not this one: that is `.busy`. Other
  /// threads that open this store at that time wait for the answer, so it must not wait for them.
  public var onCorruption: (@Sendable (CorruptionReport) -> CorruptionChoice)?
  /// Which large values this copy fetches together with the records that refer to them. The policy is stored
  /// and applies to every process that opens the store; nil, the default, keeps the stored one. A new store
  /// fetches all.
  public var blobPolicy: BlobPolicy?
  /// Limits on the large values that this copy keeps; stored like `blobPolicy`. A new store has none.
  public var blobLimits: BlobLimits?
  /// scrypt cost of one guess at the passphrase of a new store.
  package var passphraseCost = Scrypt.Parameters.standard

  /// The defaults suit a service that owns its store.
  public init(
    mode: Mode = .exclusive, durability: Durability = .full, blobThreshold: Int = 20 << 10,
    segmentBytes: Int = 64 << 20, passphrase: Passphrase? = nil, handlesSignals: Bool = true,
    allowsNetworkFileSystem: Bool = false
  ) {
    (self.mode, self.durability) = (mode, durability)
    (self.blobThreshold, self.segmentBytes) = (blobThreshold, segmentBytes)
    self.passphrase = passphrase
    self.handlesSignals = handlesSignals
    self.allowsNetworkFileSystem = allowsNetworkFileSystem
  }

  func checked() throws(StoreError) -> Configuration {
    guard (0...Limits.inlineValueBytes).contains(blobThreshold) else {
      throw StoreError(
        .outOfBounds,
        "the blob threshold must lie between 0 and \(Limits.inlineValueBytes) bytes: choose another")
    }
    guard openedRecordBytes >= 0 else {
      throw StoreError(.outOfBounds, "the bytes kept decrypted must be 0 or more: choose another number")
    }
    guard (Journal.smallestSegment...(1 << 30)).contains(segmentBytes) else {
      throw StoreError(.outOfBounds, "segments must have between 64 KiB and 1 GiB: choose another size")
    }
    if case .interval(let milliseconds) = durability, milliseconds < 1 {
      throw StoreError(.outOfBounds, "the sync interval must be at least 1 ms: choose another")
    }
    try passphrase?.check()
    return self
  }
}

/// When a write is safe from a loss of power. From the death of the process it is always safe.
public enum Durability: Hashable, Sendable {
  /// Durable before the call returns; concurrent writers share one sync.
  case full
  /// Acknowledged at once, synced at most so many milliseconds later.
  case interval(milliseconds: Int)
  /// Acknowledged at once, synced when the kernel likes, at `sync()` or before it leaves for a peer.
  case relaxed
}

/// How a store is opened.
public struct Configuration: Sendable {
  /// Who may use the directory at the same time.
  public enum Mode: Hashable, Sendable {
    /// This process alone; others get `busy`.
    case exclusive
    /// Any number of processes that open it so.
    case shared
    /// Like `shared`, but nothing is written.
    case readOnly
  }

  /// Who may use the directory at the same time.
  public var mode: Mode
  /// For writes that do not say otherwise.
  public var durability: Durability
  /// Values above this many bytes go to the blob tier; at most `Limits.inlineValueBytes`.
  public var blobThreshold: Int
  /// Journal segments double from 1 MiB up to this many bytes; 64 KiB to 1 GiB.
  public var segmentBytes: Int
  /// Are the store's files watched for what a process otherwise dies of? By default they are, process-wide:
  ///
  /// - SIGBUS in a mapped file of a store (it was cut short by another program, its disk failed, a page found no space)
  ///   becomes a `StoreError`. The handler is installed with the first file that is mapped and passes every other fault to
  ///   the one installed before it; a handler that the process installs later must do the same.
  /// - SIGXFSZ is ignored if the process has a limit on file sizes (`ulimit -f`) when a store is opened and has not asked
  ///   for that signal: a write above the limit is then `.diskFull`.
  ///
  /// An embedder that wants to handle these signals itself sets it to false for all its stores.
  public var handlesSignals: Bool
  /// Is a store on a network file system opened? By default it is refused: between machines neither locks nor mapped
  /// memory can be relied on. Only for one that is used from this machine alone.
  public var allowsNetworkFileSystem: Bool
  /// Opens an encrypted store, or makes a new one such; nil for a plain one. It is neither shown nor logged.
  public var passphrase: Passphrase?
  /// An encrypted store decrypts a value each time it is read. So many bytes of what was read lately are kept decrypted in
  /// the memory of the process, for all its threads; 0, as it is by default, for none. What is kept is never out of date,
  /// whoever writes; it goes when the store is closed, by `purgeMemory`, and when the machine is short of memory
  /// (`MemoryPressure`).
  public var openedRecordBytes = 0
  /// How long a value lasts that is put without a deadline; nil, as it is by default, if it does not expire. One that is
  /// put with the deadline `UInt64.max` never does. It is this opening's: other processes and copies have their own.
  ///
  /// Each put begins the time anew, so a `putIfChanged` without a deadline has always something to change.
  public var defaultExpiry: Expiry?
  /// Is asked once when a store that is opened has damage below what was known durable; by default the rest is served. It is
  /// called by the thread that opens, which may open other stores in it, but not this one: that is `.busy`. Other threads that open
  /// this store meanwhile wait for the answer, so it must not wait for them.
  public var onCorruption: (@Sendable (CorruptionReport) -> CorruptionChoice)?
  /// Which large values this copy takes with the records that name them. What is given is kept in the store, for all that open it;
  /// nil, as it is by default, leaves what is kept: at first, all are taken.
  public var blobPolicy: BlobPolicy?
  /// How much of the large values this copy keeps; likewise. At first there are no limits.
  public var blobLimits: BlobLimits?
  /// What a guess at the passphrase of a new store is to cost.
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

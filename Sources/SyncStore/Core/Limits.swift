/// Every bound of the product, named, with its unit. Bounds are checked where bytes arrive, before anything
/// is allocated for them.
public enum Limits {
  /// Bytes of a key; at least 1.
  public static let keyBytes = 1024
  /// Bytes of one transaction in the journal, values in the blob tier not counted.
  public static let transactionBytes = 7 << 20
  /// Bytes of a passphrase; at least 1.
  public static let passphraseBytes = 1024
  /// Bytes of a value kept in the journal itself, whatever the configuration says.
  public static let inlineValueBytes = 1 << 20
  /// Bytes of metadata stored with a blob reference.
  public static let blobMetadataBytes = 255
  /// Bytes of a blob.
  public static let blobBytes: UInt64 = 1 << 43
  /// Bytes of one coded value.
  public static let codedValueBytes = 64 << 20
  /// Nesting depth of arrays, objects and tags in a coded value.
  public static let codedValueDepth = 64
  /// Bytes of the name of a collection or an index; at least 1.
  public static let collectionNameBytes = 64
  /// Actors in a version vector (F82).
  public static let actors = 4096
  /// Open dots of a record.
  public static let openDots = 1024
  /// Milliseconds by which a stamp may run ahead of the local clock, and by which two clocks may differ.
  public static let clockDriftMilliseconds: UInt64 = 60_000
  /// Milliseconds by which a horizon (the stamp of the last purged delete) may run ahead of the clock. A
  /// horizon beyond that is neither sent nor accepted: a copy that has one stamps all its writes above it.
  static let horizonLeadMilliseconds: UInt64 = 3_600_000
  /// Milliseconds after which a silent member no longer holds up the purging of deletes: 30 days.
  public static let retirementMilliseconds: UInt64 = 30 * 86_400_000
  /// Milliseconds between two reports of a member's acknowledged vector, with at most 32 members: an hour.
  public static let acknowledgementMilliseconds: UInt64 = 3_600_000
  /// Journal positions by which a reader of changes may lag without missing a delete: compaction purges none
  /// of the last ones. A purge takes a position, too.
  public static let changesKept: UInt64 = 65_536
  /// Minimum milliseconds for which the losing value of a conflict is kept: 30 days from when it lost. The
  /// next compaction drops it.
  public static let conflictMilliseconds: UInt64 = 30 * 86_400_000
  /// Bytes of losing values that a compaction keeps: the newest.
  public static let conflictBytes = 64 << 20
  /// A clock before the beginning of 2025 was never set, in milliseconds since 1970 (F48).
  public static let earliestClockMilliseconds: UInt64 = 1_735_689_600_000

  /// Bytes of compacted segments that are kept for slow readers in any case; more if the journal is larger
  /// (F93).
  public static let heldBytes = 64 << 20

  /// Bytes of one frame that is not a batch or a blob range.
  public static let controlFrameBytes = 1 << 20
  /// Bytes of one batch once inflated.
  public static let batchBytes = 8 << 20
  /// Bytes queued for one connection before its peer must read (F90).
  public static let connectionBytes = 32 << 20
  /// Bytes that all sessions of a node hold, queued for peers or not yet stored. Above this, each session
  /// handles one batch at a time.
  public static let nodeBytes = 256 << 20
  /// Bytes of one blob range in a frame.
  public static let blobRangeBytes = 256 << 10
  /// Blobs requested and not yet received in one session.
  public static let blobsInFlight = 64
  /// Upper bound for the copies of a large value that other members must hold before it is evicted.
  public static let blobCopies = 64
  /// Seconds from accepting a connection to a finished handshake (F88).
  public static let handshakeSeconds = 10
  /// Seconds without a byte before a connection is closed (F68).
  public static let idleSeconds = 300
  /// Seconds after which an idle live session compares digests again.
  public static let comparisonSeconds = 300
  /// Seconds without a byte before a ping is sent, unless `Node.Configuration.pingSeconds` says otherwise.
  public static let pingSeconds = 15
  /// Seconds for which sent bytes may stay unacknowledged by the other machine before the connection is
  /// closed.
  public static let unacknowledgedSeconds = 25
  /// Unauthenticated connections in all (F89).
  public static let unauthenticatedConnections = 32
  /// Unauthenticated connections per address.
  public static let unauthenticatedConnectionsPerAddress = 4
  /// Wrong proofs for existing invitations from one network within a minute, after which its attempts are
  /// refused (F87). A network is an IPv4 address, or the first 64 bits of an IPv6 address.
  public static let joinAttemptsPerMinute = 10
  /// Wrong proofs for one invitation within a minute, from all networks together, after which a network that
  /// gave one is refused (F87).
  public static let wrongProofsPerInvitation = 100
  /// Invitations open at the same time: neither redeemed nor ended.
  public static let invitations = 256
  /// Bytes of the name of a store, a member or a peer.
  public static let nameBytes = 64
}

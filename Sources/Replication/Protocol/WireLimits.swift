private import SyncStore

/// Bounds of the wire that follow from those in `Limits`, and the constants of the protocol.
/// `schemas/wire.md` has them.
package enum WireLimits {
  /// The oldest and the newest version of the protocol that is spoken here.
  package static let protocolVersions: ClosedRange<UInt16> = 1...1
  /// The port of a daemon, unless its address says another.
  package static let defaultPort: UInt16 = 7420
  /// The application protocol that members negotiate in TLS.
  package static let sessionProtocol = "syncstore/1"
  /// The application protocol in which an invitation is redeemed.
  package static let joinProtocol = "syncstore-join/1"

  /// Seconds for a member's hello, once it has proven who it is: its store may have much to look through first.
  package static let helloSeconds = 60

  /// Bytes of a sealed batch in a frame.
  package static let encryptedBatchBytes = Limits.batchBytes + BatchCodec.overheadBytes
  /// Bytes of a sealed blob range in a frame.
  package static let encryptedBlobRangeBytes = Limits.blobRangeBytes + BatchCodec.overheadBytes
  /// Bytes of a frame while an invitation is redeemed: a stranger may send it.
  package static let pairingFrameBytes = 4 << 10
  /// Bytes of the inviter's answer, which holds the group keys.
  package static let joinAcceptBytes = GroupKeyRing.maximumTextBytes + 4096
  /// Addresses in an invitation; at least 1.
  package static let invitationAddresses = 8
  /// Bytes of an address in an invitation.
  package static let addressBytes = 255
  /// Bytes of the text of a refusal.
  package static let refusalBytes = 1024

  /// Groups whose buckets one message of a repair brings: 4 KiB each.
  package static let repairGroups = 64
  /// Buckets whose fingerprints one message of a repair brings.
  package static let repairBuckets = 4096
  /// Fingerprints in one message of a repair: at most 15 bytes each.
  package static let repairPrints = 1 << 15
  /// Keys that are put right at once.
  package static let repairKeys = 4096
  /// Bytes of records that one side sends for them; one record may be larger.
  package static let repairBytes = 1 << 20
  /// Times that a session compares all buckets. Then it ends, and goes on in the next one.
  package static let repairPasses = 64
  /// Keys that a session's figures name, of those put right.
  package static let repairNames = 1000

  /// Records in a batch. One transaction travels in one batch, and one of `Limits.transactionBytes` has fewer: a record takes at least 40
  /// bytes of the journal.
  package static let batchRecords = 1 << 18
  /// Writes that a batch of a full state may name beside its records.
  package static let presentDots = 1 << 16
  /// Bytes that it may take to remember which writes a full state names (`DotSet.bytes`), beside those for each key that is held
  /// here: an honest sender names what this copy covers or was given, and so little more than that, but for what was purged here alone.
  package static let fullStateBytes = 32 << 20
  /// The same for each key that is held here: what one write takes whose neighbours have all been replaced since.
  package static let fullStateBytesPerKey = DotSet.containerBytes + 2
  /// Batches sent and not yet reported durable.
  package static let batchesInFlight = 4
  /// The same where both hellos have `SessionFeature.moreBatches`: a disk that holds up one for a moment then holds up nobody else.
  package static let moreBatchesInFlight = 8
  /// Bytes of a blob that one recipe is about, at least.
  package static let recipeBytes: UInt64 = 64 << 20
  /// Chunks of a recipe; at least 1.
  package static let recipeChunks = 1 << 14
  /// Bytes of one chunk.
  package static let chunkBytes = 1 << 20
  /// Parts of a blob asked for at once; at least 1.
  package static let blobParts = 1 << 14
  /// Parts of blobs asked for and not yet read, and blobs asked for as a whole: one recipe's, and what comes beside it.
  package static let wantedParts = blobParts + Limits.blobsInFlight
  /// Blobs whose parts are asked for at once in a session, beside those that are asked for as a whole.
  package static let partedBlobs = 8
  /// Blobs asked for as a whole whose last range has not come: with those, and the one that is put together of chunks, there
  /// are never more than `Limits.blobsInFlight`.
  package static let wholeBlobs = Limits.blobsInFlight - partedBlobs - 1
  /// Blobs that one question about what is held names; at least 1.
  package static let holdings = 1024
  /// Bytes that those have together, unless it is one: who is asked reads them.
  package static let holdingsBytes: UInt64 = EvictionPass.batchBytes
  /// Bytes a second that are read through, on average, to tell a member that may only read what is held here.
  package static let readOnlyScanBytesPerSecond: UInt64 = 16 << 20
  /// Times within `renewalMilliseconds` that peers can make a copy a new actor.
  package static let renewals = 16
  /// An hour.
  package static let renewalMilliseconds: UInt64 = 3_600_000
  /// Blob ranges asked of the own store and not yet given.
  package static let blobReadsInFlight = 8
  /// Bytes queued in the transport above which no further blob range is read, so that records overtake blobs.
  package static let blobQueueBytes = 8 * Limits.blobRangeBytes
  /// Bytes received and not yet stored above which nothing more is read from the connection.
  package static let unstoredBytes = 8 << 20
  /// Bytes of batches that were opened and are not yet applied above which nothing more is read from the connection: inflated bytes, and
  /// what each record takes in memory.
  package static let decryptedBytes = 32 << 20
  /// Bytes that a queued blob range counts for besides its own: an empty one takes memory, too.
  package static let rangeOverheadBytes = 256
  /// Bytes queued for a peer above which no further batch is sealed for it, and bytes received and not yet stored above which nothing
  /// more is read from it, while all sessions of a node hold more than `Limits.nodeBytes`.
  package static let crowdedBytes = 512 << 10
  /// Bytes a minute that must come if no whole frame does: a minimum rate (F88).
  package static let minimumBytesPerMinute = 4 << 10
}

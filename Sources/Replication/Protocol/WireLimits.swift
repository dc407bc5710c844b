private import SyncStore

/// Bounds of the wire that follow from those in `Limits`, and constants of the protocol.
///
/// `schemas/wire.md` lists them.
package enum WireLimits {
  /// The oldest and newest supported version of the protocol.
  package static let protocolVersions: ClosedRange<UInt16> = 1...1
  /// The default port of a daemon.
  package static let defaultPort: UInt16 = 7420
  /// The ALPN protocol of a session between members.
  package static let sessionProtocol = "syncstore/1"
  /// The ALPN protocol for redeeming an invitation.
  package static let joinProtocol = "syncstore-join/1"

  /// Seconds to wait for an authenticated member's hello: its store may need a long scan first.
  package static let helloSeconds = 60

  /// Bytes of an encrypted batch in a frame.
  package static let encryptedBatchBytes = Limits.batchBytes + BatchCodec.overheadBytes
  /// Bytes of an encrypted blob range in a frame.
  package static let encryptedBlobRangeBytes = Limits.blobRangeBytes + BatchCodec.overheadBytes
  /// Bytes of a frame while an invitation is redeemed: the peer is not authenticated yet.
  package static let pairingFrameBytes = 4 << 10
  /// Bytes of the inviter's answer, which holds the group keys.
  package static let joinAcceptBytes = GroupKeyRing.maximumTextBytes + 4096
  /// Addresses in an invitation; at least 1.
  package static let invitationAddresses = 8
  /// Bytes of an address in an invitation.
  package static let addressBytes = 255
  /// Bytes of the text of a refusal.
  package static let refusalBytes = 1024

  /// Groups whose buckets one repair message carries: 4 KiB each.
  package static let repairGroups = 64
  /// Buckets whose fingerprints one repair message carries.
  package static let repairBuckets = 4096
  /// Fingerprints in one repair message: at most 15 bytes each.
  package static let repairPrints = 1 << 15
  /// Keys that are repaired at once.
  package static let repairKeys = 4096
  /// Bytes of records that one side sends for them; a single record may be larger.
  package static let repairBytes = 1 << 20
  /// Comparisons of all buckets per session. After that the session ends, and the next one continues.
  package static let repairPasses = 64
  /// Keys that one answer of a comparison states: all fingerprints of both sides may differ.
  package static let comparedKeys = 2 * repairPrints
  /// Bytes of stated records in an answer of a comparison; those of a single bucket may be larger.
  package static let comparedBytes = 2 << 20
  /// Answers of a comparison per session: each costs the server a pass over its keys.
  package static let comparisonAnswers: UInt64 = 4096
  /// Repaired keys that a session's statistics name.
  package static let repairNames = 1000

  /// Records in a batch. One transaction travels in one batch, and one of `Limits.transactionBytes` has
  /// fewer: a record takes at least 40 bytes of the journal.
  package static let batchRecords = 1 << 18
  /// Writes that a batch of a full state may name in addition to its records.
  package static let presentDots = 1 << 16
  /// Memory bytes for remembering which writes a full state names (`DotSet.bytes`), in addition to those per
  /// key held here.
  ///
  /// An honest sender names little more than what this copy covers or received, except for writes purged only
  /// here.
  package static let fullStateBytes = 32 << 20
  /// Additional bytes for each key held here: the cost of a write whose neighbours have all been replaced
  /// since.
  package static let fullStateBytesPerKey = DotSet.containerBytes + 2
  /// Batches in flight: sent and not yet reported durable.
  package static let batchesInFlight = 4
  /// Batches in flight if both hellos have `SessionFeature.moreBatches`: a short stall of one disk then does
  /// not stall the other side.
  package static let moreBatchesInFlight = 8
  /// Minimum bytes of a blob that one recipe describes.
  package static let recipeBytes: UInt64 = 64 << 20
  /// Chunks of a recipe; at least 1.
  package static let recipeChunks = 1 << 14
  /// Bytes of one chunk.
  package static let chunkBytes = 1 << 20
  /// Parts of a blob in one request; at least 1.
  package static let blobParts = 1 << 14
  /// Parts of blobs, and whole blobs, that are requested and not yet read: those of one recipe, and
  /// concurrent requests.
  package static let wantedParts = blobParts + Limits.blobsInFlight
  /// Blobs whose parts a session requests at once, in addition to whole blobs.
  package static let blobsInParts = 8
  /// Whole blobs requested whose last range has not arrived.
  ///
  /// With the blobs requested in parts, and the one being assembled from chunks, there are never more than
  /// `Limits.blobsInFlight`.
  package static let wholeBlobs = Limits.blobsInFlight - blobsInParts - 1
  /// Blobs in one question about holdings; at least 1.
  package static let holdings = 1024
  /// Total bytes of those blobs, unless there is only one: the other side reads them to answer.
  package static let holdingsBytes: UInt64 = EvictionPass.batchBytes
  /// Average bytes per second that are scanned to answer a read-only member's questions about holdings.
  package static let readOnlyScanBytesPerSecond: UInt64 = 16 << 20
  /// Times within `renewalMilliseconds` that peers may make a copy take a new actor.
  package static let renewals = 16
  /// An hour.
  package static let renewalMilliseconds: UInt64 = 3_600_000
  /// Blob ranges requested from the local store and not yet read.
  package static let blobReadsInFlight = 8
  /// No further blob range is read while more bytes are queued in the transport, so that records overtake
  /// blobs.
  package static let blobQueueBytes = 8 * Limits.blobRangeBytes
  /// Reading from the connection pauses while more received bytes are not yet stored.
  package static let unstoredBytes = 8 << 20
  /// Reading from the connection pauses while more bytes of decrypted batches are not yet applied: inflated
  /// bytes, and the memory of each record.
  package static let decryptedBytes = 32 << 20
  /// Bytes that a queued blob range counts for in addition to its payload: an empty one takes memory too.
  package static let rangeOverheadBytes = 256
  /// Per-peer bound while all sessions of a node hold more than `Limits.nodeBytes`.
  ///
  /// Above it, in bytes queued for the peer, no further batch is encrypted for it; above it, in received
  /// bytes not yet stored, nothing more is read from it.
  package static let crowdedBytes = 512 << 10
  /// Minimum bytes per minute from a peer that completes no frame (F88).
  package static let minimumBytesPerMinute = 4 << 10
}

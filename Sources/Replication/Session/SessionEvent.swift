package import SyncStore

/// Events for a session: received bytes, results of actions, timers.
package enum SessionEvent: Hashable, Sendable {
  /// Bytes arrived from the other side, in order.
  case received([UInt8])
  /// The transport has passed on this many of the bytes from `send`.
  case sent(Int)
  /// A timer set with `setTimer` fired.
  case timer(SessionTimer)
  /// The connection broke or was closed by the other side.
  case disconnected
  /// The own side shuts down: end at once, in an orderly way.
  case stop
  /// Ping the other side now.
  case probe
  /// Refuse this peer: end at once and send the reason. `notAMember` means that it was revoked.
  case refuse(Refusal)

  /// Answers `loadReplica`.
  case replica(Replica)
  /// Answers `loadCursor`.
  case cursor(Cursor?)
  /// Answers `openRound`: the number of records, and the close of the round.
  case roundOpened(records: UInt64, close: RoundClose)
  /// Answers `openLiveUpdate`: a round is open, and this is its beginning.
  case liveUpdateOpened(LiveUpdateOpening)
  /// Answers `openLiveUpdate`: nothing up to this position is for the other side.
  case liveUpdateEmpty(position: UInt64)
  /// Answers `followJournal`: the journal has grown, or may have.
  case journalGrown
  /// Answers `openLiveUpdate`, `applyBatch` or `applyLast`: another session between the same two copies has
  /// advanced, so this one's knowledge is outdated.
  case stale(String)
  /// Answers `readGroupKeys`: the keys as a ring's text.
  case groupKeys([UInt8])
  /// Answers `nextBatch`: the encrypted bytes, the position they reach, the number of records.
  case batchEncrypted([UInt8], position: UInt64, records: Int)
  /// Answers `nextBatch`: there are no more.
  case roundExhausted
  /// Answers `applyBatch` and `applyLast`: durable here up to `position` of the sender's journal; `missing`
  /// are the blobs that its records refer to and that are not here.
  case batchApplied(position: UInt64, records: Int, missing: [BlobNeed])
  /// Answers `finishRound`: durable.
  case roundFinished
  /// Answers `finishRound` for a round of missing keys: durable, but its sender lacks writes that this copy
  /// covers, so these keys do not count as held yet.
  case keysStillMissing
  /// Answers `readBlob`: the encrypted bytes.
  case blobRead(hash: BlobHash, offset: UInt64, encrypted: [UInt8])
  /// Answers `readBlob`: the blob or that range is not here, or the blob has another size.
  case blobUnavailable(BlobHash)
  /// Answers `storeBlobRanges` and `assembleBlob`: bytes stored so far, and whether the blob is complete
  /// (verified, durable).
  case blobStored(hash: BlobHash, held: UInt64, isComplete: Bool)
  /// Answers `storeBlobRanges` and `assembleBlob`: the complete blob did not match its hash and was deleted
  /// (F85).
  case blobRejected(BlobHash)
  /// Answers `storeBlobs`, in its order: complete (verified, durable), or deleted because it did not match
  /// its hash (F85).
  case blobsStored([Bool])
  /// Answers `makeRecipe`: the encrypted recipe.
  case recipeMade(EncryptedRecipe)
  /// Answers `makeRecipe`: the blob is not here.
  case recipeUnavailable(BlobHash)
  /// Answers `matchRecipe`: the end of the recipe, and its parts that are not here.
  case recipeMatched(hash: BlobHash, end: UInt64, missing: [BlobPart])
  /// Answers `digestState`.
  case stateDigested(DigestedState)
  /// Answers `digestBuckets`.
  case bucketsDigested([StateDigest])
  /// Answers `fingerprint`: for as many of the buckets as there is room.
  case fingerprinted(BucketPrints)
  /// Answers `exchangeRecords`: the own records and the names of as many of the keys as there is room for.
  /// Own records that the other side's beat are kept durably.
  case recordsExchanged(DifferingRecords, keys: [[UInt8]])
  /// Answers `repair`: these keys are repaired, durably.
  case repaired(RepairOutcome)
  /// Answers `stateKeys`: what is held here of the keys that differ, in as many of the buckets as there is
  /// room for.
  case keysStated(KeyStates)
  /// Answers `compareKeys`: the keys that differ.
  case keysCompared([KeyDifference])
  /// The own side requests these blobs now, whatever its policy. Results come from
  /// `Session.drainNotifications`.
  case wanted([BlobNeed])
  /// The own side requests parts of a blob, which are passed to it and not stored; results come the same way.
  case wantedParts(BlobPartsWanted)
  /// The own side asks what the other one holds; the answer comes the same way.
  case asked(HoldingsWanted)
  /// Answers `decryptBlobRange`.
  case blobRangeDecrypted(BlobHash, offset: UInt64, [UInt8])
  /// Answers `stateHoldings`.
  case holdingsStated(HoldingsStated)
  /// Answers `openRound` or `applyBatch`: the other side knows writes that this copy never made. It was
  /// rolled back (R9).
  case rolledBack(String)
  /// Answers any action: it failed.
  ///
  /// The code and the message are for the caller that runs the session. The other side learns only that
  /// something failed, and the code if it is at fault (`protocolViolation`).
  case failed(ReplicationError.Code, String, because: StoreError.Code? = nil)
}

/// Actions that a session requests of its driver, to be done in order.
///
/// Each store action is answered by one event. Up to `WireLimits.blobReadsInFlight` `readBlob` actions may be
/// open; they are answered in order. Up to `WireLimits.moreBatchesInFlight` `applyBatch` and `applyLast`
/// actions may be open; they are done and answered in order, and once one fails, none after it may be done.
/// Of every other kind at most one is open. Different kinds may run concurrently.
package enum SessionAction: Hashable, Sendable {
  /// Send these bytes to the other side, in order; report progress with `sent`.
  case send([UInt8])
  /// Stop reading from the connection until `resumeReading`: received bytes are not yet stored.
  case pauseReading
  /// Resume reading.
  case resumeReading
  /// Fire `timer` once, this many seconds from now. Replaces one of the same kind.
  case setTimer(SessionTimer, seconds: Int)
  /// Cancel the timer.
  case cancelTimer(SessionTimer)
  /// The session is over. Send what is queued and close the connection; no further event is expected.
  case close(SessionOutcome)

  /// Load the replica's durable state; with `peer`, also the cursor for that actor. The digest is evaluated
  /// at `at`, or at the wall clock if nil.
  case loadReplica(peer: ActorID?, at: UInt64?)
  /// Load the cursor for this sender.
  case loadCursor(ActorID)
  /// Take a snapshot of what this receiver lacks.
  case openRound(for: RoundReceiver)
  /// Encrypt the next batch of the last opened round.
  case nextBatch(mark: RoundMark, index: UInt32)
  /// Decrypt, decode and apply a batch of an increment, a full state or a round of missing keys; answer when
  /// it is durable.
  case applyBatch(
    sender: ActorID, mark: RoundMark, index: UInt32, encrypted: [UInt8], isFull: Bool,
    expansion: ScopeExpansion? = nil)
  /// Merge the sender's vector and close the cursor; answer when it is durable.
  case finishRound(RoundClose)
  /// `applyBatch` and `finishRound` in one durable step, for the last batch of a round whose close has
  /// arrived.
  case applyLast(sender: ActorID, mark: RoundMark, index: UInt32, encrypted: [UInt8], close: RoundClose)
  /// Answer once the journal has records after this position, now or later. Replaces an earlier one.
  case followJournal(after: UInt64)
  /// Like `openRound`, but returns the first batch at once. Records up to `after` were scanned before and are
  /// not for this receiver.
  case openLiveUpdate(since: Cursor?, after: UInt64, covered: VersionVector, scope: KeyScope? = nil)
  /// Read the keys of these epochs.
  case readGroupKeys([UInt32])
  /// Use these group keys from now on for decryption, and store them with the next round that is closed. No
  /// answer.
  case mergeGroupKeys([UInt8])
  /// Read and encrypt `count` bytes of a blob.
  case readBlob(hash: BlobHash, size: UInt64, offset: UInt64, count: Int)
  /// Decrypt and store contiguous ranges of a blob of `size` bytes; after the last ones, verify it and make
  /// it durable.
  case storeBlobRanges([BlobRange], size: UInt64)
  /// Decrypt, verify and store blobs of one range each, and make them durable together.
  case storeBlobs([BlobRange], sizes: [UInt64])
  /// Make the encrypted recipe of a blob of `size` bytes, from `offset` on.
  case makeRecipe(hash: BlobHash, size: UInt64, offset: UInt64)
  /// Decrypt a recipe for a blob of `size` bytes and find which of its chunks other blobs here contain.
  case matchRecipe(EncryptedRecipe, size: UInt64)
  /// Continue a blob of `size` bytes from other blobs here, up to `upTo`; after the last bytes, verify it and
  /// make it durable.
  case assembleBlob(BlobHash, size: UInt64, upTo: UInt64)
  /// Compute position, vector and digest of one instant, all durable; expirations evaluated at `at`, or at
  /// the wall clock.
  case digestState(at: UInt64?)
  /// Compute the digest of each of the 65,536 buckets, evaluated at a time.
  case digestBuckets(at: UInt64)
  /// Compute the fingerprints of all keys of these buckets.
  case fingerprint(buckets: [UInt16], RepairScope)
  /// Return the own records of the keys with these hashes, among those last fingerprinted. If `theirs` is
  /// given, first keep the own records that they beat.
  case exchangeRecords(hashes: [UInt64], theirs: [UInt8]?, RepairScope, index: UInt64)
  /// Repair the keys with these hashes. Without `theirs`, the other side's records are those given with
  /// `exchangeRecords`.
  case repair(hashes: [UInt64], theirs: [UInt8]?, RepairScope, index: UInt64)
  /// State what is held of the keys whose fingerprints differ from these.
  case stateKeys(BucketPrints, RepairScope, index: UInt64)
  /// Compare the own keys, among those last fingerprinted, with the other side's statement. `covered` is its
  /// vector.
  case compareKeys(KeyStates, covered: VersionVector, RepairScope, index: UInt64)
  /// Decrypt a range of a blob for its requester.
  case decryptBlobRange(BlobRange)
  /// State which of these blobs are here, durable and intact, and the covered vector; no statement while an
  /// eviction pass runs.
  case stateHoldings(HoldingsWanted)
  /// Take a new actor, durably, and log it (rule R9). No answer; `close(.reconnect)` follows. `side` is 0 for
  /// a client, 1 for a server.
  case becomeNewActor(reason: String, side: UInt8)
}

/// The timers of a session.
package enum SessionTimer: Hashable, Sendable, CaseIterable {
  /// Until the hellos are exchanged (F88).
  case handshake
  /// Until liveness of the other side is checked (F68).
  case ping
  /// Until an idle live session compares its digest again (F61).
  case comparison
  /// Until a live session whose copy waits for more keys ends, so that the next one requests them again.
  case scopeExpansion
}

/// The result of a session.
package enum SessionOutcome: Hashable, Sendable {
  /// Everything wanted is durable at its destination.
  case done
  /// One of the sides took a new actor: connect again, once.
  case reconnect(String)
  /// It was refused, or failed.
  case failed(ReplicationError.Code, String)
}

/// The directions that a client wants.
package enum SessionDirection: Hashable, Sendable, CaseIterable {
  /// Send only.
  case push
  /// Receive only.
  case pull
  /// Both at once.
  case sync

  /// Whether the client sends.
  package var sends: Bool { self != .pull }
  /// Whether the client receives.
  package var receives: Bool { self != .push }

  /// The directions of the client's hello.
  package var directions: Hello.Directions {
    switch self {
    case .push: .sends
    case .pull: .receives
    case .sync: .both
    }
  }
}

/// How long a session lasts, and whether it transfers records.
package enum SessionMode: Sendable {
  /// Ends once everything wanted is durable at its destination.
  case once
  /// Goes live once in step, if the other side wants it too.
  case live
  /// For a client: transfers no records, stays open, serves `wanted` and `asked`, and ends with `stop`.
  case controlOnly
  /// For a client: transfers no records, compares all keys, and ends.
  case comparison

  /// Whether records are transferred.
  var movesRecords: Bool { self == .once || self == .live }
}

/// Optional features that a side offers in its hello, as bits of `SessionFeature`.
package struct SessionCapabilities: OptionSet, Sendable {
  /// Bits of `Hello.compatibleFeatures`.
  package let rawValue: UInt64
  /// Makes a set of these bits.
  package init(rawValue: UInt64) { self.rawValue = rawValue }

  /// Assembles large blobs from chunks of others, if the other side supports it too.
  package static let chunks = SessionCapabilities(rawValue: SessionFeature.chunks)
  /// Answers which blobs are held here.
  package static let holdings = SessionCapabilities(rawValue: SessionFeature.holdings)
  /// Everything that this program can do.
  package static let all: SessionCapabilities = [.chunks, .holdings]
}

/// The durable state of the own copy at the handshake, loaded by the driver.
package struct Replica: Hashable, Sendable {
  /// State of the replica.
  package var summary: ReplicaSummary
  /// Digest of its live records, evaluated at the requested time.
  package var digest: StateDigest
  /// Its wall clock, in milliseconds since 1970. If no time was requested, the digest was evaluated at this
  /// one.
  package var wallMilliseconds: UInt64
  /// The cursor for the peer's actor, if requested.
  package var cursor: Cursor?
  /// Blobs that records here refer to and that are not here.
  package var missingBlobs: [BlobNeed]
  /// The known group keys; empty if they are not passed on.
  package var epochs: [EpochCheck]
  /// Whether it supports repair.
  package var repairs: Bool
  /// Whether it does not keep all blobs that it receives.
  package var leavesOut = false

  /// All fields.
  package init(
    summary: ReplicaSummary, digest: StateDigest, wallMilliseconds: UInt64, cursor: Cursor? = nil,
    missingBlobs: [BlobNeed] = [], epochs: [EpochCheck] = [], repairs: Bool = false
  ) {
    (self.summary, self.digest, self.wallMilliseconds) = (summary, digest, wallMilliseconds)
    (self.cursor, self.missingBlobs, self.epochs, self.repairs) = (cursor, missingBlobs, epochs, repairs)
  }
}

/// Statistics of a session.
package struct SessionFigures: Hashable, Sendable {
  /// User records sent and received.
  package var sentRecords = 0, receivedRecords = 0
  /// Batches sent and received.
  package var batches = 0
  /// Records announced by rounds, for progress.
  package var announced = AnnouncedRecords()
  /// Blobs sent completely, and blobs received, verified and stored.
  package var sentBlobs = 0, receivedBlobs = 0
  /// Bytes of blobs that were assembled from other blobs here instead of being sent.
  package var assembledBytes: UInt64 = 0
  /// Bytes passed to and received from the transport, with frames, without TLS.
  package var sentBytes = 0, receivedBytes = 0
  /// Number of requests whose answer this side waited for; concurrent transfers do not count.
  package var roundTrips = 0
  /// The position of the own journal up to which the other side has confirmed that it holds everything,
  /// durably.
  package var acknowledged: UInt64 = 0
  /// The last receipt of the other side.
  package var receipt: Receipt?
  /// Answers about blobs that arrived, and ranges of blobs that were stored here.
  package var blobSteps = 0
  /// Keys that had two contents under one write and were repaired (F61), and the names of the first of them.
  package var repairedKeys = 0, repaired: [[UInt8]] = []

  /// Creates empty statistics.
  package init() {}

  /// A number that changes with every progress except keep-alives.
  ///
  /// On a slow line other messages may precede blobs, and one range of a blob takes time.
  package var transferProgress: Int { blobSteps + receivedBytes / WireLimits.minimumBytesPerMinute }
}

/// The number of records that the rounds of a session have announced, in each direction.
package struct AnnouncedRecords: Hashable, Sendable {
  /// By the own rounds.
  package private(set) var sent: UInt64 = 0
  /// By the other side's rounds.
  package private(set) var received: UInt64 = 0

  /// Adds the number of an own round.
  mutating func addSent(_ records: UInt64) { sent += records }

  /// Adds the number of a round of the other side. It may be any number: that side is not bound by it.
  mutating func addReceived(_ records: UInt64) {
    let (sum, isBeyond) = received.addingReportingOverflow(records)
    received = isBeyond ? .max : sum
  }
}

/// An opened live round, with its first batch.
package struct LiveUpdateOpening: Hashable, Sendable {
  /// A batch of the round.
  package struct Batch: Hashable, Sendable {
    /// The encrypted bytes.
    package var encrypted: [UInt8]
    /// The position that it reaches.
    package var position: UInt64
    /// Number of records in it.
    package var records: Int

    /// All fields.
    package init(encrypted: [UInt8], position: UInt64, records: Int) {
      (self.encrypted, self.position, self.records) = (encrypted, position, records)
    }
  }

  /// Number of records in the round.
  package var records: UInt64
  /// The close of the round.
  package var close: RoundClose
  /// The first batch; nil if the round only states the snapshot's coverage.
  package var first: Batch?
  /// Whether there is no further batch.
  package var isWhole: Bool

  /// All fields.
  package init(records: UInt64, close: RoundClose, first: Batch?, isWhole: Bool) {
    (self.records, self.close, self.first, self.isWhole) = (records, close, first, isWhole)
  }
}

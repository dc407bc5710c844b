package import SyncStore

/// What happened, told to a session: bytes came, an action it asked for is done, a timer fired.
package enum SessionEvent: Hashable, Sendable {
  /// Bytes came from the other side, in order.
  case received([UInt8])
  /// The transport has handed on this many of the bytes that `send` gave it.
  case sent(Int)
  /// A timer that `setTimer` set has run out.
  case timer(SessionTimer)
  /// The connection broke or was closed by the other side.
  case disconnected
  /// The own side shuts down: end at once, in good order.
  case stop
  /// Ask the other side for a sign of life now.
  case probe
  /// The own side will not go on with this peer: end at once, and tell it why. `notAMember` says that it was revoked.
  case refuse(Refusal)

  /// Answers `loadReplica`.
  case replica(Replica)
  /// Answers `loadCursor`.
  case cursor(Cursor?)
  /// Answers `openRound`: how many records it has, and what will close it.
  case roundOpened(records: UInt64, close: RoundClose)
  /// Answers `openBurst`: a round is open, and this is its beginning.
  case liveUpdateOpened(LiveUpdateOpening)
  /// Answers `openBurst`: nothing up to this position is for the other side.
  case liveUpdateEmpty(position: UInt64)
  /// Answers `follow`: the journal has grown, or may have.
  case journalGrown
  /// Answers `openBurst`, `applyBatch` or `applyLast`: another session has moved on for the same two copies, and what this
  /// one knows does not hold any more.
  case stale(String)
  /// Answers `giveGroupKeys`: the keys as a ring's text.
  case groupKeys([UInt8])
  /// Answers `nextBatch`: the sealed bytes, the position they reach, how many records they hold.
  case batchEncrypted([UInt8], position: UInt64, records: Int)
  /// Answers `nextBatch`: there are no more.
  case roundExhausted
  /// Answers `applyBatch` and `applyLast`: durable here up to `position` of the sender's journal; the blobs among what its
  /// records refer to whose bytes are not here.
  case batchApplied(position: UInt64, records: Int, missing: [BlobNeed])
  /// Answers `finishRound`: durable.
  case roundFinished
  /// Answers `finishRound` for a round of keys that were lacking: durable, but its sender lacks writes that this copy covers, so that
  /// it does not hold these keys yet.
  case keysStillMissing
  /// Answers `readBlob`: the sealed bytes.
  case blobRead(hash: BlobHash, offset: UInt64, encrypted: [UInt8])
  /// Answers `readBlob`: the blob, or that part of it, is not here, or has another size.
  case blobUnavailable(BlobHash)
  /// Answers `storeBlobRanges` and `assembleBlob`: `held` bytes of the blob are stored now; it is complete (verified, durable) or
  /// not.
  case blobStored(hash: BlobHash, held: UInt64, isComplete: Bool)
  /// Answers `storeBlobRanges` and `assembleBlob`: the whole blob does not match its hash, and was thrown away (F85).
  case blobRejected(BlobHash)
  /// Answers `storeBlobs`, in its order: is the blob complete (verified, durable), or was it thrown away because it is not what its
  /// hash says (F85)?
  case blobsStored([Bool])
  /// Answers `makeRecipe`: the sealed bytes.
  case recipeMade(EncryptedRecipe)
  /// Answers `makeRecipe`: the blob is not here.
  case recipeUnavailable(BlobHash)
  /// Answers `matchRecipe`: up to where it goes, and what of it is not here.
  case recipeMatched(hash: BlobHash, end: UInt64, missing: [BlobPart])
  /// Answers `digestState`.
  case stateDigested(DigestedState)
  /// Answers `digestBuckets`.
  case bucketsDigested([StateDigest])
  /// Answers `fingerprint`: of as many of the buckets as there is room for.
  case fingerprinted(BucketPrints)
  /// Answers `exchangeRecords`: the own records of as many of the keys as there is room for, and the keys' names. What theirs beat is
  /// kept, durably.
  case recordsExchanged(DifferingRecords, keys: [[UInt8]])
  /// Answers `repair`: these keys were put right, durably.
  case repaired(RepairOutcome)
  /// The own side wants these blobs now, whatever its policy. What becomes of it is among `Session.drainNotifications`.
  case wanted([BlobNeed])
  /// The own side wants parts of a blob, which are not stored but given to it; likewise.
  case wantedParts(BlobPartsWanted)
  /// The own side asks what the other one holds; likewise.
  case asked(HoldingsWanted)
  /// Answers `decryptBlobRange`.
  case blobRangeDecrypted(BlobHash, offset: UInt64, [UInt8])
  /// Answers `stateHoldings`.
  case holdingsStated(HoldingsStated)
  /// Answers `openRound` or `applyBatch`: the other side knows what this copy never did: it was rolled back
  /// (R9).
  case rolledBack(String)
  /// Answers any action: it could not be done. The code and the message go to whoever runs the session; the
  /// other side learns only that something failed, and the code when it is at fault (`protocolViolation`).
  case failed(ReplicationError.Code, String, because: StoreError.Code? = nil)
}

/// What a session wants done.
///
/// The driver does them in the order given. Each of the store's actions is answered by one event; the answers
/// to `readBlob` come in the order of the questions (up to `WireLimits.blobReadsInFlight` are open), and so do those to
/// `applyBatch` and `applyLast` (up to `WireLimits.moreBatchesInFlight`), which are done in that order, too: once one cannot be done,
/// none behind it is. Of every other kind only one is open at a time. Different kinds may run side by side.
package enum SessionAction: Hashable, Sendable {
  /// Hand these bytes to the other side, in order; report progress with `sent`.
  case send([UInt8])
  /// Stop reading from the connection until `resumeReading`: what came is not yet stored.
  case pauseReading
  /// Go on reading.
  case resumeReading
  /// Let `timer` come once, this many seconds from now. Replaces one of the same kind.
  case setTimer(SessionTimer, seconds: Int)
  /// The timer is no longer wanted.
  case cancelTimer(SessionTimer)
  /// The session is over. Send what was given, close the connection; no event is wanted any more.
  case close(SessionOutcome)

  /// Give the replica's durable state; with `peer`, also the cursor for that actor. The digest is to be
  /// judged at `at`, or at the wall clock if nil.
  case loadReplica(peer: ActorID?, at: UInt64?)
  /// Give the cursor for this sender.
  case loadCursor(ActorID)
  /// Fix a snapshot of what this receiver lacks.
  case openRound(for: RoundReceiver)
  /// Seal the next batch of the round opened last.
  case nextBatch(mark: RoundMark, index: UInt32)
  /// Open, decode and apply a batch, of the sender's full state or of an increment; answer when it is durable.
  /// It may also be of keys that were lacking.
  case applyBatch(
    sender: ActorID, mark: RoundMark, index: UInt32, encrypted: [UInt8], isFull: Bool,
    expansion: ScopeExpansion? = nil)
  /// Merge the sender's vector and close the cursor; answer when it is durable.
  case finishRound(RoundClose)
  /// `applyBatch` and `finishRound` in one durable step: the last batch of a round whose close has come.
  case applyLast(sender: ActorID, mark: RoundMark, index: UInt32, encrypted: [UInt8], close: RoundClose)
  /// Answer once the journal has something behind this position, now or later. Replaces an earlier one.
  case followJournal(after: UInt64)
  /// As `openRound`, and give the first batch at once. What lies up to `behind` was looked at before, and is not for this
  /// receiver.
  case openLiveUpdate(since: Cursor?, after: UInt64, covered: VersionVector, scope: KeyScope? = nil)
  /// Give the keys of these epochs.
  case readGroupKeys([UInt32])
  /// Use these group keys from now on for what comes, and keep them with the next round that is closed. No answer.
  case mergeGroupKeys([UInt8])
  /// Read and seal `count` bytes of a blob.
  case readBlob(hash: BlobHash, size: UInt64, offset: UInt64, count: Int)
  /// Open and store bytes of a blob of `size` bytes, ranges one behind the other; with the last ones, verify it and make it durable.
  case storeBlobRanges([BlobRange], size: UInt64)
  /// Open, verify and store blobs that came in one range each, and make them durable together.
  case storeBlobs([BlobRange], sizes: [UInt64])
  /// Say what a blob of `size` bytes is made of, from `offset` on, sealed.
  case makeRecipe(hash: BlobHash, size: UInt64, offset: UInt64)
  /// Open a recipe for a blob of `size` bytes and look what of it is in other blobs here.
  case matchRecipe(EncryptedRecipe, size: UInt64)
  /// Go on with a blob of `size` bytes from other blobs here, up to `upTo`; with the last bytes, verify it and make it durable.
  case assembleBlob(BlobHash, size: UInt64, upTo: UInt64)
  /// Give position, vector and digest of one instant, all durable; deadlines judged at `at`, or at the wall
  /// clock.
  case digestState(at: UInt64?)
  /// Give the digest of each of the 65,536 buckets, judged at a time.
  case digestBuckets(at: UInt64)
  /// Give the fingerprints of all keys of these buckets.
  case fingerprint(buckets: [UInt16], RepairScope)
  /// Give the own records of the keys with these hashes, among those last fingerprinted. If the other side's are given, keep those own ones
  /// that they beat first.
  case exchangeRecords(hashes: [UInt64], theirs: [UInt8]?, RepairScope, index: UInt64)
  /// Put the keys with these hashes right. Without `theirs` the other side's records are those given with `exchangeRecords`.
  case repair(hashes: [UInt64], theirs: [UInt8]?, RepairScope, index: UInt64)
  /// Open bytes of a blob, for who asked for them.
  case decryptBlobRange(BlobRange)
  /// Say which of these blobs are here, durable and in good order, and what is covered; nothing while blobs leave.
  case stateHoldings(HoldingsWanted)
  /// Take a new actor, durably and loudly (rule R9). No answer; `close(.reconnect)` follows.
  /// `side` is 0 for a client, 1 for a server.
  case becomeNewActor(reason: String, side: UInt8)
}

/// The timers of a session.
package enum SessionTimer: Hashable, Sendable, CaseIterable {
  /// Until the hellos are exchanged (F88).
  case handshake
  /// Until it is looked whether the other side is still there (F68).
  case ping
  /// Until a live session that rests compares its digest again (F61).
  case comparison
  /// Until a live session ends whose copy waits for more keys, so that the next one asks for them again.
  case scopeExpansion
}

/// How a session ended.
package enum SessionOutcome: Hashable, Sendable {
  /// All that was wanted is durable where it belongs.
  case done
  /// One of the sides took a new actor: connect again, once.
  case reconnect(String)
  /// It was refused, or failed.
  case failed(ReplicationError.Code, String)
}

/// What a client wants of a session.
package enum SessionDirection: Hashable, Sendable, CaseIterable {
  /// Send only.
  case push
  /// Receive only.
  case pull
  /// Both at once.
  case sync

  /// Does the client send?
  package var sends: Bool { self != .pull }
  /// Does the client receive?
  package var receives: Bool { self != .push }
}

/// The durable state of the own copy, as the driver gives it at the handshake.
package struct Replica: Hashable, Sendable {
  /// What the copy says of itself.
  package var summary: ReplicaSummary
  /// The digest of its live records, judged at the time that was asked for.
  package var digest: StateDigest
  /// Its wall clock, in milliseconds since 1970. If no time was asked for, the digest was judged at this one.
  package var wallMilliseconds: UInt64
  /// The cursor for the peer's actor, if that was asked for.
  package var cursor: Cursor?
  /// Blobs that records here refer to and whose bytes are not here.
  package var missingBlobs: [BlobNeed]
  /// The group keys that are known here; empty if they are not handed on.
  package var epochs: [EpochCheck]
  /// Can it put right what two copies have differently?
  package var repairs: Bool
  /// Does it leave large values out of what it takes?
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

/// What a session has moved so far.
package struct SessionFigures: Hashable, Sendable {
  /// Records of users that were sent and received.
  package var sentRecords = 0, receivedRecords = 0
  /// Batches sent and received.
  package var batches = 0
  /// Records that the rounds under way announced, for showing progress.
  package var announcedSentRecords: UInt64 = 0, announcedReceivedRecords: UInt64 = 0
  /// Blobs sent to their end, and blobs received, verified and stored.
  package var sentBlobs = 0, receivedBlobs = 0
  /// Bytes of blobs that were not sent because other blobs here had them.
  package var assembledBytes: UInt64 = 0
  /// Bytes given to and taken from the transport, frames included, TLS not.
  package var sentBytes = 0, receivedBytes = 0
  /// How often this side asked for something and then heard: what both sides give meanwhile waits for nothing.
  package var roundTrips = 0
  /// The position of the own journal up to which the other side has said that it holds everything, durably.
  package var acknowledged: UInt64 = 0
  /// The last receipt of the other side.
  package var receipt: Receipt?
  /// Answers about large values that came, and pieces of them that were stored here.
  package var blobSteps = 0
  /// Keys that had two contents under one write and were put right (F61), and the first of them by name.
  package var repairedKeys = 0, repaired: [[UInt8]] = []

  /// Nothing moved.
  package init() {}

  /// A number that stays the same while nothing comes but signs of life. On a slow line other things may come before large values, and one
  /// range of these takes its time.
  package var transferProgress: Int { blobSteps + receivedBytes / WireLimits.minimumBytesPerMinute }

  /// A round announces so many records: any number, for nothing holds the other side to it.
  mutating func announceReceived(_ records: UInt64) {
    let (sum, isBeyond) = announcedReceivedRecords.addingReportingOverflow(records)
    announcedReceivedRecords = isBeyond ? .max : sum
  }
}

/// A round of a live session, opened, with as much of it as one batch holds.
package struct LiveUpdateOpening: Hashable, Sendable {
  /// A batch.
  package struct Batch: Hashable, Sendable {
    /// Its sealed bytes.
    package var encrypted: [UInt8]
    /// The position that it reaches.
    package var position: UInt64
    /// How many records it holds.
    package var records: Int

    /// All fields.
    package init(encrypted: [UInt8], position: UInt64, records: Int) {
      (self.encrypted, self.position, self.records) = (encrypted, position, records)
    }
  }

  /// How many records it has.
  package var records: UInt64
  /// What will close it.
  package var close: RoundClose
  /// The first batch; nil if there is nothing but what the snapshot covers.
  package var first: Batch?
  /// Is there no other batch?
  package var isWhole: Bool

  /// All fields.
  package init(records: UInt64, close: RoundClose, first: Batch?, isWhole: Bool) {
    (self.records, self.close, self.first, self.isWhole) = (records, close, first, isWhole)
  }
}

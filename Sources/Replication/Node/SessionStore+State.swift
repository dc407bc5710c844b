internal import SyncStore

extension SessionStore {
  /// State that the actions of one session leave for later ones. Guarded by the lock of `SessionStore.state`.
  struct State {
    /// Group keys of the session.
    var keys = Keys()
    var compression = CompressionState()
    var handshake = HandshakeState()
    var outgoing = OutgoingRounds()
    var incoming = IncomingRounds()
    /// Whether the session is live. Then it must detect what others do for the same two copies.
    var isLive = false
    var failure: StoreError?
    /// State of the repair in progress.
    var repair = RepairWork()
    /// Where the chunks of the blob being assembled are found on this copy.
    var match: (hash: BlobHash, match: BlobMatch)?
  }

  /// The group keys of a session.
  struct Keys {
    /// The keys that it encrypts and decrypts with; nil before it has read them.
    var ring: GroupKeyRing?
    /// Keys from the other side, stored when its round is closed: by then it is known who was revoked.
    var received: GroupKeyRing?
  }

  /// This copy as stated in the handshake. Set once, when the replica is loaded.
  struct HandshakeState {
    /// The own actor.
    var actor: ActorID?
    /// The scope of this copy; nil for all keys.
    var scope: KeyScope?
    /// Milliseconds by which the wall clock was ahead of the clock that cannot be set, when the two copies
    /// compared their wall clocks; nil if there is none.
    var clockLead: Int64?
  }

  /// Decides what is deflated, from what it has gained so far.
  struct CompressionState {
    /// After a range of a blob that did not shrink, compression is tried again only after this many bytes.
    private static let untriedBytes: UInt64 = 2 << 20

    private var choice = CompressionChoice()
    /// Batches that are encrypted and not acknowledged, with the time of encryption.
    private var underway: [(CompressionChoice.Measure, UInt64)] = []
    private var lastAcknowledged: UInt64 = 0
    /// The blob whose last range did not shrink, and the offset up to which ranges are sent without
    /// compression.
    private var unshrinking: (hash: BlobHash, end: UInt64)?

    /// Whether a batch of that many bytes is deflated.
    mutating func deflates(_ bytes: Int) -> Bool { choice.deflates(bytes) }

    /// A batch was encrypted at a time of the monotonic clock, in nanoseconds.
    mutating func encrypted(_ measure: CompressionChoice.Measure, at time: UInt64) {
      underway.append((measure, time))
    }

    /// The other side has acknowledged `count` further batches.
    mutating func acknowledged(_ count: Int, at now: UInt64) {
      for _ in 0..<min(count, underway.count) {
        var (measure, sent) = underway.removeFirst()
        measure.transferTime = now - min(now, max(sent, lastAcknowledged))
        // Batches acknowledged together give no transfer time for each.
        if count == 1 { choice.acknowledged(measure) }
      }
      lastAcknowledged = now
    }

    /// Whether the range of the blob at `offset` is deflated.
    func deflates(_ hash: BlobHash, at offset: UInt64) -> Bool {
      unshrinking.map { $0.hash != hash || offset >= $0.end } ?? true
    }

    /// The range of the blob at `offset` was deflated, and did not shrink.
    mutating func didNotShrink(_ hash: BlobHash, at offset: UInt64) {
      unshrinking = (hash, offset + Self.untriedBytes)
    }
  }

  /// The rounds for the other side.
  struct OutgoingRounds {
    /// The context of the first round's delta scan, from the handshake until the round is opened.
    var scanContext: DeltaScanContext?
    /// The round whose batches are being read.
    var round: DeltaStream?
    /// The marks of the current live round and of the one before it, which the other side has completely.
    private(set) var marks: [RoundMark] = []
    /// The receiver of live rounds.
    private(set) var peer: ActorID?

    /// A live round with this mark begins, after those with the marks `left` by earlier sessions. Returns the
    /// marks that the other side's cursor has passed.
    mutating func beginLiveUpdate(
      _ mark: RoundMark, left: [RoundMark], to peer: ActorID?
    ) -> ArraySlice<RoundMark> {
      let marks = left + self.marks + [mark]
      (self.marks, self.peer) = (marks.suffix(2), peer)
      return marks.dropLast(2)
    }
  }

  /// The rounds of the other side.
  ///
  /// Invariant: a batch is appended only after all earlier batches of its round.
  struct IncomingRounds {
    /// The part of the other side's full state that has arrived, and its round.
    var full: (mark: RoundMark, state: FullState)?
    /// The cursor for the other side, as this session has left it.
    var cursor: Cursor?
    /// The cursor for the missing keys, as the current round has left it; nil if it has brought nothing yet.
    var missingKeysCursor: Cursor?
    /// The positions of the own journal that the last batch filled.
    var lastAppliedRange: (after: UInt64, upTo: UInt64)?
    /// Whether this copy covers more since the last round was closed.
    var coverageGrew = false
    /// Index of the next batch of the round that may be appended; nil once one failed.
    private var nextBatchIndex: UInt32? = 0

    /// Begins to append a batch. False if an earlier one of its round failed. Until `appended` is called, the
    /// batch counts as failed.
    mutating func beginAppend(_ index: UInt32) -> Bool {
      defer { nextBatchIndex = nil }
      return index == 0 || nextBatchIndex == index
    }

    /// A batch will not be appended.
    mutating func failAppend() { nextBatchIndex = nil }

    /// A batch was appended, and filled `range` of the own journal.
    mutating func appended(
      _ index: UInt32, reaching cursor: Cursor, isScopeExpansion: Bool, range: (after: UInt64, upTo: UInt64)?
    ) {
      nextBatchIndex = index + 1
      lastAppliedRange = range
      // Missing keys have a cursor of their own.
      if isScopeExpansion { missingKeysCursor = cursor } else { self.cursor = cursor }
    }
  }
}

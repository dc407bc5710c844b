package import SyncStore

/// An entry of a stream: one round for all readers of the relay (rules L1–L3). `schemas/relay.md` has the
/// bytes.
package struct RelayEntry: Hashable, Sendable {
  /// The digest of what was live at the publisher.
  package struct StatedDigest: Hashable, Sendable {
    /// The digest.
    package var digest: StateDigest
    /// The time at which expirations were evaluated, in milliseconds since 1970.
    package var time: UInt64

    /// Both fields.
    package init(digest: StateDigest, time: UInt64) { (self.digest, self.time) = (digest, time) }
  }

  /// Where the records are.
  package enum Content: Hashable, Sendable {
    /// In the entry: payloads of batches (`RecordCodec`).
    case inline([[UInt8]])
    /// In objects of their own, in order.
    case parts([RelayPart])
  }

  /// Its number and mark.
  package var place: RelayProgress.Place
  /// The publisher's actor.
  package var actor: ActorID
  /// The last sequence that the actor had written.
  package var sequence: UInt64
  /// The position of the publisher's journal that the entry reaches. Only the publisher needs it.
  package var position: UInt64
  /// What the publisher covered: merged by a reader when the entry is closed.
  package var vector: VersionVector
  /// The publisher's floor.
  package var floor: VersionVector
  /// The publisher's horizon.
  package var horizon: Stamp
  /// The last entry read of each other stream.
  package var dependencies: [StreamID: RelayProgress.Place]
  /// The publisher's digest, if everything that it held was covered by `vector`.
  package var digest: StatedDigest?
  /// When it was published, in milliseconds since 1970, by the publisher's clock.
  package var time: UInt64
  /// Whether the publisher holds only some keys (rule L12).
  package var isNarrow: Bool
  /// Number of records.
  package var records: UInt64
  /// The records.
  package var content: Content

  /// The close of the round that this entry is, for a reader.
  func close(isFull: Bool, scope: KeyScope?, recording relay: RelayRecord) -> RoundClose {
    var close = RoundClose(
      sender: actor, mark: place.mark, position: position, vector: vector, floor: floor, horizon: horizon,
      kind: isFull ? .fullState : isNarrow ? .narrowDelta : .delta)
    (close.scope, close.relay) = (scope, relay)
    return close
  }
}

/// An object with encrypted batches.
package struct RelayPart: Hashable, Sendable {
  /// Its name.
  package var name: String
  /// Its size in bytes.
  package var bytes: UInt64
  /// Number of batches in it.
  package var batches: UInt32
  /// The first 16 bytes of the SHA-256 of its bytes: an object of another member must not take its place.
  package var fingerprint: [UInt8]

  /// All fields.
  package init(name: String, bytes: UInt64, batches: UInt32, fingerprint: [UInt8]) {
    (self.name, self.bytes, self.batches, self.fingerprint) = (name, bytes, batches, fingerprint)
  }
}

/// Consecutive entries of a stream, encoded together: of all but the first, only the changes.
package struct RelayRun: Hashable, Sendable {
  /// The stream.
  package var stream: StreamID
  /// The place before the first entry; nil if that is number 1.
  package var previous: RelayProgress.Place?
  /// The entries, in order.
  package var entries: [RelayEntry] = []

  /// An empty run after a place.
  package init(stream: StreamID, after previous: RelayProgress.Place?) {
    (self.stream, self.previous) = (stream, previous)
  }

  /// The last place.
  package var last: RelayProgress.Place? { entries.last?.place ?? previous }
  /// The number of the first entry, also if it is not there yet.
  package var first: UInt64 { (previous?.number ?? 0) + 1 }

  /// The entry with this number; nil if it is not in the run.
  package func entry(_ number: UInt64) -> RelayEntry? {
    guard number >= first, number - first < UInt64(entries.count) else { return nil }
    return entries[Int(number - first)]
  }

  /// The place before an entry of the run.
  package func place(before number: UInt64) -> RelayProgress.Place? {
    number == first ? previous : entry(number - 1)?.place
  }
}

/// A run that is an object of its own.
package struct RelayRunReference: Hashable, Sendable {
  /// The numbers of its entries.
  package var numbers: ClosedRange<UInt64>
  /// Its size in bytes.
  package var bytes: UInt64
  /// As `RelayPart.fingerprint`.
  package var fingerprint: [UInt8]

  /// All fields.
  package init(numbers: ClosedRange<UInt64>, bytes: UInt64, fingerprint: [UInt8]) {
    (self.numbers, self.bytes, self.fingerprint) = (numbers, bytes, fingerprint)
  }
}

/// The state of a publisher: stands for the entry with its place, and for all that this depends on.
package struct RelayCheckpoint: Hashable, Sendable {
  /// The stream of the entry.
  package var stream: StreamID
  /// The state, in the form of an entry with the same place. Its dependencies do not name its own stream.
  package var state: RelayEntry
  /// Bytes published in each stream up to the places that it stands for.
  package var totals: [StreamID: UInt64]
  /// Bytes of its records.
  package var bytes: UInt64
  /// The vector of its entry. The state may cover more: what was written between the two snapshots. No entry
  /// that the checkpoint stands for has that, so its readers do not take it as covered there.
  package var closing: VersionVector

  /// All fields.
  package init(
    stream: StreamID, state: RelayEntry, totals: [StreamID: UInt64], bytes: UInt64, closing: VersionVector
  ) {
    (self.stream, self.state, self.totals, self.bytes) = (stream, state, totals, bytes)
    self.closing = closing
  }

  /// The places that it stands for, in all streams.
  package var places: [StreamID: RelayProgress.Place] {
    var places = state.dependencies
    places[stream] = state.place
    return places
  }
}

/// Names a checkpoint in a head.
package struct RelayCheckpointReference: Hashable, Sendable {
  /// The place of its entry in the head's stream.
  package var place: RelayProgress.Place
  /// When it was written, in milliseconds since 1970, by its publisher's clock.
  package var time: UInt64
  /// As `RelayPart.fingerprint`, of its table.
  package var fingerprint: [UInt8]

  /// All fields.
  package init(place: RelayProgress.Place, time: UInt64, fingerprint: [UInt8]) {
    (self.place, self.time, self.fingerprint) = (place, time, fingerprint)
  }
}

/// An object that will be deleted.
package struct RelayDoom: Hashable, Sendable {
  /// Its name.
  package var name: String
  /// When it was named, in milliseconds since 1970, by the store's clock.
  package var time: UInt64

  /// Both fields.
  package init(name: String, time: UInt64) { (self.name, self.time) = (name, time) }
}

/// The head of a stream: the one object of it that changes.
package struct RelayHead: Hashable, Sendable {
  /// The stream.
  package var stream: StreamID { run.stream }
  /// The public key of the device that writes it (Ed25519, 32 bytes).
  package var publicKey: [UInt8]
  /// The public key with which others encrypt group keys for that device (X25519, 32 bytes).
  package var wrappingKey: [UInt8]
  /// The actor that writes it.
  package var actor: ActorID
  /// When it was written, in milliseconds since 1970, by the publisher's clock.
  package var time: UInt64
  /// Whether this copy can read on only with a full state that none of the checkpoints in `tried` gives:
  /// members that read this add one.
  package var needsFullState = false
  /// The fingerprints of the checkpoints that did not help.
  package var tried: [[UInt8]] = []
  /// Bytes published in the stream so far.
  package var total: UInt64 = 0
  /// The last entries.
  package var run: RelayRun
  /// The runs before it, oldest first; those that were collected are missing.
  package var runs: [RelayRunReference] = []
  /// The last entry that was read of each other stream: tells what this copy has.
  package var seen: [StreamID: RelayProgress.Place] = [:]
  /// Checkpoints of this stream, oldest first.
  package var checkpoints: [RelayCheckpointReference] = []
  /// Large values that this copy lacks and the relay, too: a member that holds one adds it.
  package var wanted: [BlobReference] = []
  /// Objects that will be deleted a day after they were named here: a member that needs one writes it again.
  package var doomed: [RelayDoom] = []

  /// A head without entries.
  package init(stream: StreamID, publicKey: [UInt8], wrappingKey: [UInt8], actor: ActorID, time: UInt64) {
    (self.publicKey, self.wrappingKey, self.actor, self.time) = (publicKey, wrappingKey, actor, time)
    run = RelayRun(stream: stream, after: nil)
  }

  /// The last entry; nil before the first.
  package var last: RelayProgress.Place? { run.last }
  /// The device that writes it.
  package var device: DeviceID { DeviceIdentity.id(ofPublicKey: publicKey) }
}

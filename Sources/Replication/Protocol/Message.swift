package import SyncStore

/// The numbers of the messages on the wire. Numbers from 0x80 are extensions: a side that does not know one
/// ignores it.
package enum MessageType: UInt8, CaseIterable, Sendable {
  case hello = 0x01
  case want = 0x02
  case roundBegin = 0x03
  case batch = 0x04
  case batchReceived = 0x05
  case roundClose = 0x06
  case receipt = 0x07
  case blobWant = 0x08
  case blobRange = 0x09
  case blobUnavailable = 0x0A
  case ping = 0x0B
  case pong = 0x0C
  case goodbye = 0x0D
  case refuse = 0x0E
  case joinRequest = 0x10
  case joinAccept = 0x11
  case live = 0x12
  case liveUpdate = 0x13
  case liveUpdateEnd = 0x14
  case liveUpdateReceived = 0x15
  case groupKeys = 0x16
  case stateClaim = 0x17
  case digestGroups = 0x18
  case groupBuckets = 0x19
  case bucketPrints = 0x1A
  case differingRecords = 0x1B
  case repaired = 0x1C
  case scopeWant = 0x1D
  case keysWant = 0x1E
  case keyStates = 0x1F
  case recipeWant = 0x20
  case recipe = 0x21
  case partsWant = 0x22
  case recipeUnavailable = 0x23
  case holdingsWant = 0x28
  case holdings = 0x29

  /// The first number of the extensions.
  package static let firstExtension: UInt8 = 0x80
}

/// The messages between two copies, or between an inviter and a joiner. `schemas/wire.md` has every byte.
package enum Message: Hashable, Sendable {
  /// Identity and state of the sender: the first message in both directions.
  case hello(Hello)
  /// A hello without a protocol version in common; nothing else in it can be decoded.
  case foreignHello(ClosedRange<UInt16>)
  /// Receiver to sender: open a round from this cursor, if there is one.
  case want(Cursor?)
  /// Sender to receiver: a round begins.
  case roundBegin(RoundBegin)
  /// Records of the current round: the number of the batch in its round, from 0, and its encrypted bytes.
  case batch(index: UInt32, encrypted: [UInt8])
  /// Receiver to sender: durable here up to this position of the sender's journal.
  case batchReceived(position: UInt64)
  /// Sender to receiver: the round is complete.
  case roundClose(RoundEnd)
  /// Receiver to sender: the round and all blobs are durable here.
  case receipt(Receipt)
  /// Requests blobs, each from an offset.
  case blobWant([BlobNeed])
  /// Bytes of a blob.
  case blobRange(BlobRange)
  /// The blob is not held here.
  case blobUnavailable(BlobHash)
  /// Keep-alive, answered by a pong with the same number.
  case ping(UInt64)
  /// The answer to a ping.
  case pong(UInt64)
  /// Orderly end. No message follows.
  case goodbye
  /// Ends the session with a reason. No message follows.
  case refuse(Refusal)
  /// A joiner's request, with proof that it holds an invitation.
  case joinRequest(JoinRequest)
  /// The inviter's answer.
  case joinAccept(JoinAccept)
  /// Client to server: all wanted transfers are done, the session goes live (`LiveMessages.swift`).
  case live
  /// Sender to receiver, live: a round begins.
  case liveUpdate(LiveUpdate)
  /// Sender to receiver, live: the round is complete, with this number of batches.
  case liveUpdateEnd(batches: UInt32)
  /// Receiver to sender, live: the round is durable and closed here; `missingBlobs` blobs are still missing.
  case liveUpdateReceived(position: UInt64, missingBlobs: UInt64)
  /// Group keys that the other side lacks, as a key ring's text.
  case groupKeys([UInt8])
  /// Client to server, live and idle: this side's state. Server to client: its differing state
  /// (`RepairMessages.swift`).
  case stateClaim(StateClaim)
  /// Client to server: the digests differ; these are mine by group of keys.
  case digestGroups(DigestGroups)
  /// Server to client: the digests by bucket, of the groups that differ.
  case groupBuckets([GroupBuckets])
  /// Client to server: the fingerprints in the buckets that differ.
  case bucketPrints(BucketPrints)
  /// Server to client, then client to server: the sender's records of keys that differ.
  case differingRecords(DifferingRecords)
  /// Server to client: number of keys repaired here, and whether this side took a new actor.
  case repaired(keys: UInt64, isRenewed: Bool)
  /// Client to server: the fingerprints in the buckets that differ, to be answered by `keyStates`
  /// (`ComparisonMessages.swift`).
  case keysWant(BucketPrints)
  /// Server to client: what it holds of the keys that differ.
  case keyStates(KeyStates)
  /// Client to server: requests the records of keys that this copy did not hold so far
  /// (`Exchange+Scope.swift`).
  case scopeWant(ScopeWant)
  /// Receiver to sender: requests the recipe of this blob from an offset on.
  case recipeWant(BlobNeed)
  /// Sender to receiver: the recipe, for a part of the blob.
  case recipe(EncryptedRecipe)
  /// Receiver to sender: requests parts of a blob.
  case partsWant(BlobPartsWanted)
  /// Sender to receiver: the recipe of this blob is not available.
  case recipeUnavailable(BlobHash)
  /// Asks which of these blobs the other side holds (`HoldingMessages.swift`).
  case holdingsWant(HoldingsWanted)
  /// The answer to `holdingsWant`.
  case holdings(HoldingsStated)
}

/// Identity and state of a copy.
package struct Hello: Hashable, Sendable {
  /// The supported versions of the protocol.
  package var versions: ClosedRange<UInt16>
  /// Features that the other side must all know.
  package var incompatibleFeatures: UInt64
  /// Features that the other side may ignore.
  package var compatibleFeatures: UInt64
  /// State of the replica.
  package var summary: ReplicaSummary
  /// Its wall clock, in milliseconds since 1970.
  package var wallMilliseconds: UInt64
  /// Digest of the live records, evaluated at the *client's* wall clock in both hellos.
  package var digest: StateDigest
  /// The directions in which the side wants to transfer.
  package var directions: Directions
  /// Cursor for the other side's actor, if one exists. Never in the client's hello.
  package var cursor: Cursor?
  /// The known group keys. Sent only with the feature `SessionFeature.groupKeys`.
  package var epochs: [EpochCheck]

  /// A hello in the versions of this library. The features that the other side must know follow from the
  /// scope.
  package init(
    compatibleFeatures: UInt64 = 0, summary: ReplicaSummary, wallMilliseconds: UInt64, digest: StateDigest,
    directions: Directions, cursor: Cursor? = nil, epochs: [EpochCheck] = []
  ) {
    versions = WireLimits.protocolVersions
    incompatibleFeatures = summary.scope == nil ? 0 : NeededFeature.scope
    (self.compatibleFeatures, self.summary) = (compatibleFeatures, summary)
    (self.wallMilliseconds, self.digest) = (wallMilliseconds, digest)
    (self.directions, self.cursor, self.epochs) = (directions, cursor, epochs)
  }

  /// Directions of transfer, as one side sees them. The bits are those of the wire.
  package struct Directions: OptionSet, Hashable, Sendable {
    /// The bits.
    package let rawValue: UInt8
    /// From its bits.
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// The side wants to receive.
    package static let receives = Directions(rawValue: 1)
    /// The side offers to send.
    package static let sends = Directions(rawValue: 2)
    /// Both directions.
    package static let both: Directions = [.receives, .sends]

    /// The same transfer as the other side sees it.
    package var mirrored: Directions {
      var mirrored: Directions = []
      if contains(.receives) { mirrored.insert(.sends) }
      if contains(.sends) { mirrored.insert(.receives) }
      return mirrored
    }
  }

  /// Whether the side wants to receive.
  package var receives: Bool { directions.contains(.receives) }
  /// Whether the side offers to send.
  package var sends: Bool { directions.contains(.sends) }
}

/// The beginning of a round.
package struct RoundBegin: Hashable, Sendable {
  /// The content of a round.
  package enum Kind: UInt8, Sendable {
    /// Changes after the receiver's cursor.
    case increment = 0
    /// Full state: all that the sender holds (rule R8).
    case full = 1
    /// Records of keys that the receiver did not hold so far.
    case scopeExpansion = 2
  }

  /// The round's name.
  package var mark: RoundMark
  /// The content of the round.
  package var kind: Kind
  /// The last position of the snapshot.
  package var position: UInt64
  /// Number of records to come, for progress.
  package var records: UInt64

  /// All fields.
  package init(mark: RoundMark, kind: Kind = .increment, position: UInt64, records: UInt64) {
    (self.mark, self.kind, self.position, self.records) = (mark, kind, position, records)
  }
}

/// The end of a round: the sender's state when it fixed the snapshot. The sender is known from its hello.
package struct RoundEnd: Hashable, Sendable {
  /// The round's name.
  package var mark: RoundMark
  /// The last position of the snapshot.
  package var position: UInt64
  /// Number of batches sent.
  package var batches: UInt32
  /// What the snapshot covers.
  package var vector: VersionVector
  /// The sender's floor.
  package var floor: VersionVector
  /// The sender's horizon.
  package var horizon: Stamp

  /// All fields.
  package init(
    mark: RoundMark, position: UInt64, batches: UInt32, vector: VersionVector, floor: VersionVector,
    horizon: Stamp
  ) {
    (self.mark, self.position, self.batches) = (mark, position, batches)
    (self.vector, self.floor, self.horizon) = (vector, floor, horizon)
  }
}

/// A receiver's confirmation that the records sent are durable there.
package struct Receipt: Hashable, Sendable {
  /// Durable up to this position of the sender's journal.
  package var received: UInt64
  /// The receiver's own state.
  package var state: DigestedState
  /// Blobs that were requested but not received. Above zero, the transfer is incomplete.
  package var missingBlobs: UInt64

  /// All fields.
  package init(received: UInt64, state: DigestedState, missingBlobs: UInt64) {
    (self.received, self.state, self.missingBlobs) = (received, state, missingBlobs)
  }
}

/// The durable state of a copy at one instant, with the digest of its live records.
package struct DigestedState: Hashable, Sendable {
  /// The last position of its own journal.
  package var position: UInt64
  /// The vector it covers.
  package var vector: VersionVector
  /// The digest of its live records.
  package var digest: StateDigest
  /// The time at which expirations were evaluated, in milliseconds since 1970.
  package var at: UInt64

  /// All fields.
  package init(position: UInt64, vector: VersionVector, digest: StateDigest, at: UInt64) {
    (self.position, self.vector, self.digest, self.at) = (position, vector, digest, at)
  }
}

/// A blob that is missing here, wholly or in part.
package struct BlobNeed: Hashable, Sendable {
  /// The blob.
  package var hash: BlobHash
  /// Its size in bytes.
  package var size: UInt64
  /// Bytes already here, from the start of the blob.
  package var offset: UInt64
  /// Whether other blobs here may share chunks with it. Not on the wire.
  package var hasKin = false
  /// Whether only beaten values refer to it: then it is no error if no member holds it any more. Not on the
  /// wire.
  package var isSpare = false

  /// All fields on the wire, and `hasKin`.
  package init(hash: BlobHash, size: UInt64, offset: UInt64 = 0, hasKin: Bool = false) {
    (self.hash, self.size, self.offset, self.hasKin) = (hash, size, offset, hasKin)
  }
}

/// A range of a blob.
package struct BlobRange: Hashable, Sendable {
  /// The blob.
  package var hash: BlobHash
  /// Offset of the range in the blob.
  package var offset: UInt64
  /// Whether the blob ends with this range.
  package var isLast: Bool
  /// The encrypted bytes (`schemas/wire-batch.md`); at most `Limits.blobRangeBytes` after decryption.
  package var encrypted: [UInt8]

  /// All fields.
  package init(hash: BlobHash, offset: UInt64, isLast: Bool, encrypted: [UInt8]) {
    (self.hash, self.offset, self.isLast, self.encrypted) = (hash, offset, isLast, encrypted)
  }
}

/// The reason why a side ends the session.
package struct Refusal: Hashable, Sendable {
  /// The reason as a number on the wire. Unknown numbers are decoded as `unavailable`.
  package enum Code: UInt8, CaseIterable, Sendable {
    case notAMember = 1
    case notAllowed = 2
    case invalidInvitation = 3
    case clockSkew = 4
    case otherStore = 5
    case incompatible = 6
    case protocolViolation = 7
    case unavailable = 8
    case digestsDiffer = 9
    case timeout = 10
    /// The refusing side detected that it was rolled back and took a new actor: connect again (rule R9).
    case tryAgain = 11
    /// Both sides have the same actor: each takes a new one, then connect again (F62).
    case sameActor = 12
  }

  /// The reason.
  package var code: Code
  /// The reason in words, at most `WireLimits.refusalBytes` bytes.
  package var text: String

  /// Both fields.
  package init(_ code: Code, _ text: String) { (self.code, self.text) = (code, text) }
}

/// The first message of a joiner.
package struct JoinRequest: Hashable, Sendable {
  /// The invitation: 8 bytes.
  package var invitation: [UInt8]
  /// The name that the joining device requests, 1 to `Limits.nameBytes` bytes.
  package var deviceName: String
  /// Proof that it has the invitation's secret: 32 bytes.
  package var mac: [UInt8]

  /// All fields.
  package init(invitation: [UInt8], deviceName: String, mac: [UInt8]) {
    (self.invitation, self.deviceName, self.mac) = (invitation, deviceName, mac)
  }
}

/// The inviter's answer to a joiner whose proof is valid.
package struct JoinAccept: Hashable, Sendable {
  /// Proof that the inviter holds the secret too: 32 bytes, over all the other fields.
  package var mac: [UInt8]
  /// The store to join.
  package var store: StoreID
  /// Its name.
  package var storeName: String
  /// The inviter's name among the members.
  package var inviterName: String
  /// The joiner's name among the members: the requested one, made unique.
  package var memberName: String
  /// The joiner's access right.
  package var right: MemberRight
  /// The group keys by epoch, as the key ring encodes them.
  package var groupKeys: [UInt8]

  /// All fields.
  package init(
    mac: [UInt8], store: StoreID, storeName: String, inviterName: String, memberName: String,
    right: MemberRight, groupKeys: [UInt8]
  ) {
    (self.mac, self.store, self.storeName) = (mac, store, storeName)
    (self.inviterName, self.memberName, self.right, self.groupKeys) = (
      inviterName, memberName, right, groupKeys
    )
  }
}

/// The access right of a member.
package enum MemberRight: UInt8, Hashable, Sendable {
  /// Receive, and send its own and others' writes.
  case readWrite = 0
  /// Receive only (F81).
  case readOnly = 1
}

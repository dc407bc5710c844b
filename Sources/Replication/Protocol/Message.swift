package import SyncStore

/// The numbers of the messages on the wire. From 0x80 on they are extensions: who does not know one ignores
/// it.
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
  case recipeWant = 0x20
  case recipe = 0x21
  case partsWant = 0x22
  case recipeUnavailable = 0x23
  case holdingsWant = 0x28
  case holdings = 0x29

  /// The first number of the extensions.
  package static let firstExtension: UInt8 = 0x80
}

/// What two copies, or an inviter and a joiner, say to each other. `schemas/wire.md` has every byte.
package enum Message: Hashable, Sendable {
  /// Who I am and what I have: the first message, both ways.
  case hello(Hello)
  /// A hello that has no version of the protocol in common with this program: nothing else in it can be read.
  case foreignHello(ClosedRange<UInt16>)
  /// Receiver to sender: open a round. My cursor for you, if I have one.
  case want(Cursor?)
  /// Sender to receiver: a round begins.
  case roundBegin(RoundBegin)
  /// Records of the round under way: the number of the batch in its round, from 0, and its sealed bytes.
  case batch(index: UInt32, encrypted: [UInt8])
  /// Receiver to sender: durable here up to this position of your journal.
  case batchReceived(position: UInt64)
  /// Sender to receiver: the round is complete.
  case roundClose(RoundEnd)
  /// Receiver to sender: the round and all blobs are durable here.
  case receipt(Receipt)
  /// Please send these blobs, each from an offset.
  case blobWant([BlobNeed])
  /// Bytes of a blob.
  case blobRange(BlobRange)
  /// The blob is not here.
  case blobUnavailable(BlobHash)
  /// Are you there? Answered by a pong that carries the same number.
  case ping(UInt64)
  /// I am.
  case pong(UInt64)
  /// All is said. Nothing follows.
  case goodbye
  /// I will not go on, and why. Nothing follows.
  case refuse(Refusal)
  /// A stranger shows that he has an invitation.
  case joinRequest(JoinRequest)
  /// The inviter's answer.
  case joinAccept(JoinAccept)
  /// Client to server: all that was wanted is done, and the session goes on live (`LiveMessages.swift`).
  case live
  /// Sender to receiver, live: a round begins.
  case liveUpdate(LiveUpdate)
  /// Sender to receiver, live: the round is complete; so many batches.
  case liveUpdateEnd(batches: UInt32)
  /// Receiver to sender, live: the round is durable and closed here; so many blobs have still to come.
  case liveUpdateReceived(position: UInt64, missingBlobs: UInt64)
  /// Group keys that the other side lacks, as a key ring's text.
  case groupKeys([UInt8])
  /// Client to server, live and at rest: what I hold. Server to client: I hold something else (`RepairMessages.swift`).
  case stateClaim(StateClaim)
  /// Client to server: our digests differ, these are mine by groups of keys.
  case digestGroups(DigestGroups)
  /// Server to client: the digests by bucket of groups that differ.
  case groupBuckets([GroupBuckets])
  /// Client to server: what I hold of the buckets that differ.
  case bucketPrints(BucketPrints)
  /// Server to client, then client to server: my records of keys that differ.
  case differingRecords(DifferingRecords)
  /// Server to client: so many keys were put right here; I am a new actor now, or not.
  case repaired(keys: UInt64, isRenewed: Bool)
  /// Client to server: please send what is under keys that I did not hold so far (`Exchange+Scope.swift`).
  case scopeWant(ScopeWant)
  /// Receiver to sender: what is this blob made of, from an offset on?
  case recipeWant(BlobNeed)
  /// Sender to receiver: this, for a while.
  case recipe(EncryptedRecipe)
  /// Receiver to sender: please send these parts of a blob.
  case partsWant(BlobPartsWanted)
  /// Sender to receiver: what the blob is made of cannot be said.
  case recipeUnavailable(BlobHash)
  /// Do you hold these large values (`HoldingMessages.swift`)?
  case holdingsWant(HoldingsWanted)
  /// These I do.
  case holdings(HoldingsStated)
}

/// Who a copy is and what it has.
package struct Hello: Hashable, Sendable {
  /// The versions of the protocol that it speaks.
  package var versions: ClosedRange<UInt16>
  /// Features of which the other side must know every one.
  package var incompatibleFeatures: UInt64
  /// Features that the other side may ignore.
  package var compatibleFeatures: UInt64
  /// What the copy says of itself.
  package var summary: ReplicaSummary
  /// Its wall clock, in milliseconds since 1970.
  package var wallMilliseconds: UInt64
  /// The digest of its live records, judged at the *client's* wall clock, in both hellos.
  package var digest: StateDigest
  /// It wants to receive.
  package var receives: Bool
  /// It offers to send.
  package var sends: Bool
  /// Its cursor for the other's actor, if that is known to it and there is one. Never in the client's hello.
  package var cursor: Cursor?
  /// The group keys that it knows. Said only with the feature `SessionFeature.groupKeys`.
  package var epochs: [EpochCheck]

  /// All fields.
  package init(
    versions: ClosedRange<UInt16> = WireLimits.protocolVersions, incompatibleFeatures: UInt64 = 0,
    compatibleFeatures: UInt64 = 0, summary: ReplicaSummary, wallMilliseconds: UInt64, digest: StateDigest,
    receives: Bool, sends: Bool, cursor: Cursor? = nil, epochs: [EpochCheck] = []
  ) {
    (self.versions, self.incompatibleFeatures) = (versions, incompatibleFeatures)
    (self.compatibleFeatures, self.summary) = (compatibleFeatures, summary)
    (self.wallMilliseconds, self.digest) = (wallMilliseconds, digest)
    (self.receives, self.sends, self.cursor, self.epochs) = (receives, sends, cursor, epochs)
  }
}

/// The beginning of a round.
package struct RoundBegin: Hashable, Sendable {
  /// What a round brings.
  package enum Kind: UInt8, Sendable {
    /// What changed behind the receiver's cursor.
    case increment = 0
    /// All that the sender holds (rule R8).
    case full = 1
    /// What is under keys that the receiver did not hold so far.
    case scopeExpansion = 2
  }

  /// The round's name.
  package var mark: RoundMark
  /// What it brings.
  package var kind: Kind
  /// The last position of the snapshot.
  package var position: UInt64
  /// How many records will come, for showing progress.
  package var records: UInt64

  /// All fields.
  package init(mark: RoundMark, kind: Kind = .increment, position: UInt64, records: UInt64) {
    (self.mark, self.kind, self.position, self.records) = (mark, kind, position, records)
  }
}

/// The end of a round: the sender's state when it fixed the snapshot. The sender itself is known from its
/// hello.
package struct RoundEnd: Hashable, Sendable {
  /// The round's name.
  package var mark: RoundMark
  /// The last position of the snapshot.
  package var position: UInt64
  /// How many batches were sent.
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

/// A receiver's statement that what it was sent is durable there.
package struct Receipt: Hashable, Sendable {
  /// Durable up to this position of the sender's journal.
  package var received: UInt64
  /// The receiver's own state.
  package var state: DigestedState
  /// Blobs that were asked for and not given. Above zero, what was sent is not complete.
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
  /// What it covers.
  package var vector: VersionVector
  /// The digest of its live records.
  package var digest: StateDigest
  /// The time at which deadlines were judged, in milliseconds since 1970.
  package var at: UInt64

  /// All fields.
  package init(position: UInt64, vector: VersionVector, digest: StateDigest, at: UInt64) {
    (self.position, self.vector, self.digest, self.at) = (position, vector, digest, at)
  }
}

/// A blob that is not, or not wholly, here.
package struct BlobNeed: Hashable, Sendable {
  /// Which.
  package var hash: BlobHash
  /// Its size in bytes.
  package var size: UInt64
  /// How many of its bytes are here already, from its start.
  package var offset: UInt64
  /// May other blobs here have something in common with it? Not on the wire.
  package var hasKin = false
  /// Do only beaten values refer to it? Then nothing fails if nobody has it any more. Not on the wire.
  package var isSpare = false

  /// All fields of the wire, and `hasKin`.
  package init(hash: BlobHash, size: UInt64, offset: UInt64 = 0, hasKin: Bool = false) {
    (self.hash, self.size, self.offset, self.hasKin) = (hash, size, offset, hasKin)
  }
}

/// Some bytes of a blob.
package struct BlobRange: Hashable, Sendable {
  /// Of which blob.
  package var hash: BlobHash
  /// Where they begin in it.
  package var offset: UInt64
  /// Does the blob end with them?
  package var isLast: Bool
  /// The bytes, sealed (`schemas/wire-batch.md`); at most `Limits.blobRangeBytes` once opened.
  package var encrypted: [UInt8]

  /// All fields.
  package init(hash: BlobHash, offset: UInt64, isLast: Bool, encrypted: [UInt8]) {
    (self.hash, self.offset, self.isLast, self.encrypted) = (hash, offset, isLast, encrypted)
  }
}

/// Why a side does not go on.
package struct Refusal: Hashable, Sendable {
  /// The reason, as a number on the wire. One that is not known here reads as `unavailable`.
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
    /// The refusing side found itself rolled back and took a new actor: connect again (rule R9).
    case tryAgain = 11
    /// Both sides bear one actor: each takes a new one, then connect again (F62).
    case sameActor = 12
  }

  /// The reason.
  package var code: Code
  /// The reason in words, at most `WireLimits.refusalBytes` bytes.
  package var text: String

  /// Both fields.
  package init(_ code: Code, _ text: String) { (self.code, self.text) = (code, text) }
}

/// What a joiner sends first.
package struct JoinRequest: Hashable, Sendable {
  /// Which invitation: 8 bytes.
  package var invitation: [UInt8]
  /// What the joining device wants to be called, 1 to `Limits.nameBytes` bytes.
  package var deviceName: String
  /// Proof that it has the invitation's secret: 32 bytes.
  package var mac: [UInt8]

  /// All fields.
  package init(invitation: [UInt8], deviceName: String, mac: [UInt8]) {
    (self.invitation, self.deviceName, self.mac) = (invitation, deviceName, mac)
  }
}

/// What the inviter answers to a joiner whose proof is good.
package struct JoinAccept: Hashable, Sendable {
  /// Proof that the inviter has the secret too: 32 bytes, over all the other fields.
  package var mac: [UInt8]
  /// The store to become a copy of.
  package var store: StoreID
  /// Its name.
  package var storeName: String
  /// What the inviter is called among the members.
  package var inviterName: String
  /// What the joiner is called among the members: the name it asked for, made unique.
  package var memberName: String
  /// What the joiner may do.
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

/// What a member may do.
package enum MemberRight: UInt8, Hashable, Sendable {
  /// Receive, and send what it and others wrote.
  case readWrite = 0
  /// Receive only (F81).
  case readOnly = 1
}

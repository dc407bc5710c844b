private import SyncStore

/// The secrets shared by the members of a store: one key per epoch.
///
/// Revoking a member begins a new epoch. Older keys are kept to decrypt what was encrypted under them.
package struct GroupKeyRing: Hashable, Sendable {
  /// Bytes of a key.
  package static let keyBytes = 32
  /// Maximum number of epochs in a ring.
  package static let maximumEpochs = 1024
  /// Ring entries and epoch numbers that merging keys from other members must leave free for future epochs.
  package static let reservedEpochs = 64
  /// Epochs accepted from others in one merge even if they use up the reserve: members may have begun them
  /// with what was left.
  package static let epochsFromReserve = 4
  /// Consecutive epochs that others may have begun while their keys are unknown here.
  package static let epochsPassedOver = 16
  /// Maximum bytes of a ring's text.
  package static let maximumTextBytes = 128 << 10

  private var keys: [UInt32: [UInt8]]
  /// The epoch used for encryption: the highest.
  package private(set) var current: UInt32

  /// Creates a ring with one epoch, 1, whose key is `key` (32 bytes).
  package init(key: [UInt8]) {
    precondition(key.count == Self.keyBytes, "a group key has 32 bytes")
    keys = [1: key]
    current = 1
  }

  /// The epochs, ascending.
  package var epochs: [UInt32] { keys.keys.sorted() }

  /// The key of `epoch`; nil if it is unknown.
  package func key(of epoch: UInt32) -> [UInt8]? { keys[epoch] }

  /// Adds the key (32 bytes) of an epoch, which becomes the current one if it is the highest.
  ///
  /// Adding the same key again changes nothing. `.protocolViolation` if the epoch is 0 or has another key
  /// already, or if the ring is full.
  package mutating func insert(_ key: [UInt8], epoch: UInt32) throws(ReplicationError) {
    guard epoch > 0, key.count == Self.keyBytes, keys[epoch] ?? key == key else {
      throw ReplicationError(
        .protocolViolation,
        "group key of epoch \(epoch): it is not a key, or contradicts the one known here: ask a third member")
    }
    guard keys[epoch] != nil || keys.count < Self.maximumEpochs else {
      throw ReplicationError(
        .protocolViolation,
        "group key of epoch \(epoch): the ring holds \(Self.maximumEpochs) epochs already: begin a new store"
      )
    }
    keys[epoch] = key
    current = max(current, epoch)
  }

  /// Random bits in an epoch's number.
  ///
  /// Two members that begin an epoch at the same time thereby begin two different ones; the greater one is
  /// used for encryption everywhere.
  private static let randomBits: UInt32 = 22
  private static let lastCount = count(of: .max)

  /// The generation of an epoch: how many epochs began in succession, up to this one.
  private static func count(of epoch: UInt32) -> UInt32 { epoch >> randomBits }

  /// Begins the next epoch with `key` (32 random bytes) and returns its number, which contains bits of
  /// `random`.
  package mutating func beginEpoch(_ key: [UInt8], random: UInt32) throws(ReplicationError) -> UInt32 {
    let count = Self.count(of: current) + 1
    guard count <= Self.lastCount else {
      throw ReplicationError(
        .protocolViolation, "the group keys have no number left for another epoch: begin a new store")
    }
    try insert(key, epoch: count << Self.randomBits | random & (1 << Self.randomBits - 1))
    return current
  }

  /// Proofs of knowledge of each key, without the keys: an HMAC-SHA256 under each.
  package var checks: [EpochCheck] {
    epochs.map { epoch in
      let code = HMACSHA256.code(for: Self.checkPurpose, key: keys[epoch] ?? [])
      return EpochCheck(epoch: epoch, check: Array(code.prefix(EpochCheck.checkBytes)))
    }
  }

  private static let checkPurpose = Array("syncstore epoch check v1".utf8)

  /// The ring restricted to the `wanted` epochs. At least one of them must be in the ring.
  package func only(_ wanted: [UInt32]) -> GroupKeyRing {
    var ring = self
    ring.keys = keys.filter { wanted.contains($0.key) }
    ring.current = ring.keys.keys.max() ?? 0
    return ring
  }

  /// Adds all keys of `other`.
  ///
  /// Changes nothing and throws `.protocolViolation` if an epoch has different keys, or if the result would
  /// use up the ring entries and numbers that the group needs for new epochs.
  package mutating func merge(_ other: GroupKeyRing) throws(ReplicationError) {
    var merged = self
    for epoch in other.epochs {
      if let key = other.key(of: epoch) { try merged.insert(key, epoch: epoch) }
    }
    try checkLeavesRoom(merged)
    self = merged
  }

  /// Checks that room for further epochs remains. Otherwise one member could end key renewal on every copy.
  private func checkLeavesRoom(_ merged: GroupKeyRing) throws(ReplicationError) {
    let places = max(Self.epochsFromReserve, Self.maximumEpochs - Self.reservedEpochs - keys.count)
    let highest = max(
      Self.count(of: current) + UInt32(Self.epochsFromReserve), Self.lastCount - UInt32(Self.reservedEpochs))
    var last: UInt32 = 0
    let isInOrder = merged.epochs.allSatisfy { epoch in
      defer { last = Self.count(of: epoch) }
      return keys[epoch] != nil || Self.count(of: epoch) <= last + UInt32(Self.epochsPassedOver)
    }
    guard isInOrder, merged.keys.count - keys.count <= places, Self.count(of: merged.current) <= highest
    else {
      throw ReplicationError(
        .protocolViolation,
        "group keys up to epoch \(merged.current): they leave no room for further epochs: revoke who gave them, "
          + "or join the store again")
    }
  }
}

extension GroupKeyRing {
  private static let firstLine = "syncstore-group-keys 1"

  /// The ring as text (schemas/wire-batch.md). It contains the secret keys.
  package var text: String {
    let lines = epochs.map { "epoch \($0) \(Hex.string(of: keys[$0] ?? []))" }
    let body = ([Self.firstLine] + lines).map { $0 + "\n" }.joined()
    return body + "sum \(Hex.string(of: SHA256.hash(Array(body.utf8))))\n"
  }

  /// Parses exactly what `text` produces. Otherwise `.protocolViolation`, with no part of a key in the
  /// message.
  package init(text: String) throws(ReplicationError) {
    func failure(_ why: String) -> ReplicationError {
      ReplicationError(
        .protocolViolation, "group keys: \(why): restore the file from a backup, or join the store again")
    }
    guard text.utf8.count <= Self.maximumTextBytes else { throw failure("too many bytes") }
    var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
    guard lines.popLast() == "", let sum = lines.popLast(), lines.first == Self.firstLine[...] else {
      throw failure("not a file of version 1")
    }
    let body = lines.map { $0 + "\n" }.joined()
    guard sum == "sum \(Hex.string(of: SHA256.hash(Array(body.utf8))))" else {
      throw failure("the checksum does not match")
    }
    keys = [:]
    current = 0
    for line in lines.dropFirst() {
      let fields = line.split(separator: " ", omittingEmptySubsequences: false)
      guard fields.count == 3, fields[0] == "epoch", let epoch = UInt32(fields[1]), epoch > current,
        let key = Hex.bytes(of: fields[2])
      else { throw failure("a line is not an epoch above the one before it") }
      try insert(key, epoch: epoch)
    }
    guard current > 0, self.text == text else { throw failure("it is not in the one form it is written in") }
  }
}

extension GroupKeyRing: CustomStringConvertible, CustomReflectable {
  /// The epochs without the keys: a ring may end up in a log.
  package var description: String { "group keys of epochs \(epochs)" }

  /// Empty, because `dump` would show the keys.
  package var customMirror: Mirror { Mirror(self, children: []) }
}

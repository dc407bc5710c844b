private import SyncStore

/// The secrets that the members of a store share: one key for each epoch. Revoking a member begins a new epoch, and
/// the older keys stay for what was sealed under them.
package struct GroupKeyRing: Hashable, Sendable {
  /// Bytes of a key.
  package static let keyBytes = 32
  /// Epochs in a ring.
  package static let maximumEpochs = 1024
  /// Places in a ring, and numbers of epochs, that what others give leaves for epochs to come.
  package static let reservedEpochs = 64
  /// Epochs that are taken from others at once all the same: those that members have begun since with what was left.
  package static let epochsFromReserve = 4
  /// Epochs that others may have begun, one behind the other, without the keys of those between being known.
  package static let epochsPassedOver = 16
  /// Bytes of a ring's text.
  package static let maximumTextBytes = 128 << 10

  private var keys: [UInt32: [UInt8]]
  /// The epoch under which is sealed: the highest.
  package private(set) var current: UInt32

  /// A ring of one epoch, 1, with `key` (32 bytes).
  package init(key: [UInt8]) {
    precondition(key.count == Self.keyBytes, "a group key has 32 bytes")
    keys = [1: key]
    current = 1
  }

  /// The epochs, ascending.
  package var epochs: [UInt32] { keys.keys.sorted() }

  /// The key of `epoch`; nil if it is unknown.
  package func key(of epoch: UInt32) -> [UInt8]? { keys[epoch] }

  /// Adds the key (32 bytes) of an epoch, which becomes the current one if it is the highest. The same key again
  /// changes nothing. `.protocolViolation` if the epoch is 0 or has another key already, or the ring is full.
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

  /// Bits of an epoch's number that are random: two members that begin an epoch at the same time begin two, and the greater
  /// one counts for sealing everywhere.
  private static let randomBits: UInt32 = 22
  private static let lastCount = count(of: .max)

  /// How many epochs have begun one behind the other, up to this one.
  private static func count(of epoch: UInt32) -> UInt32 { epoch >> randomBits }

  /// Begins the next epoch with `key` (32 random bytes), and returns its number, of which `random` is a part.
  package mutating func beginEpoch(_ key: [UInt8], random: UInt32) throws(ReplicationError) -> UInt32 {
    let count = Self.count(of: current) + 1
    guard count <= Self.lastCount else {
      throw ReplicationError(
        .protocolViolation, "the group keys have no number left for another epoch: begin a new store")
    }
    try insert(key, epoch: count << Self.randomBits | random & (1 << Self.randomBits - 1))
    return current
  }

  /// What says that these keys are known here, without the keys: HMAC-SHA256 under each.
  package var checks: [EpochCheck] {
    epochs.map { epoch in
      let code = HMACSHA256.code(for: Self.checkPurpose, key: keys[epoch] ?? [])
      return EpochCheck(epoch: epoch, check: Array(code.prefix(EpochCheck.checkBytes)))
    }
  }

  private static let checkPurpose = Array("syncstore epoch check v1".utf8)

  /// The ring of some of its epochs; those that are not in it are left out. At least one must be.
  package func only(_ wanted: [UInt32]) -> GroupKeyRing {
    var ring = self
    ring.keys = keys.filter { wanted.contains($0.key) }
    ring.current = ring.keys.keys.max() ?? 0
    return ring
  }

  /// Adds all keys of `other`. Changes nothing, and throws `.protocolViolation`, if an epoch has another key there than
  /// here, or if they would use up the places and numbers that the group needs to begin epochs.
  package mutating func merge(_ other: GroupKeyRing) throws(ReplicationError) {
    var merged = self
    for epoch in other.epochs {
      if let key = other.key(of: epoch) { try merged.insert(key, epoch: epoch) }
    }
    try checkLeavesRoom(merged)
    self = merged
  }

  /// One member could otherwise end the renewal of keys on every copy.
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

  /// The ring as text (schemas/wire-batch.md): a secret.
  package var text: String {
    let lines = epochs.map { "epoch \($0) \(Hex.string(of: keys[$0] ?? []))" }
    let body = ([Self.firstLine] + lines).map { $0 + "\n" }.joined()
    return body + "sum \(Hex.string(of: SHA256.hash(Array(body.utf8))))\n"
  }

  /// Reads what `text` wrote, exactly. `.protocolViolation` for anything else, with no part of a key in the message.
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
  /// The epochs, never the keys: a ring may end up in a log.
  package var description: String { "group keys of epochs \(epochs)" }

  /// Nothing: `dump` would show the keys.
  package var customMirror: Mirror { Mirror(self, children: []) }
}

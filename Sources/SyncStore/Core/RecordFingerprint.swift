/// Fingerprint of a key's winning record, to compare two copies: 8 bytes for the key, 8 for its content.
package struct RecordFingerprint: Hashable, Sendable {
  /// State of the record.
  package enum State: UInt8, Sendable, CaseIterable {
    /// A tombstone, or past its deadline: equivalent to no record.
    case dead = 0
    /// A value.
    case live = 1
    /// Received after the two copies were compared; it says nothing of how they differed then.
    case newer = 2
  }

  /// XXH3-64 of the key, seed 0. The lower 16 bits are the key's bucket.
  package var keyHash: UInt64
  /// Dead, live, or to be ignored.
  package var state: State
  /// The lower half of the record's part in the state digest; 0 unless it is live.
  package var content: UInt64

  /// All fields.
  package init(keyHash: UInt64, state: State, content: UInt64) {
    (self.keyHash, self.state, self.content) = (keyHash, state, content)
  }

  /// The fingerprint of a record.
  init(_ record: Record, _ keyHash: UInt64, isNewer: Bool, at time: UInt64) {
    self.init(keyHash: keyHash, state: isNewer ? .newer : record.isLive(at: time) ? .live : .dead, content: 0)
    guard state == .live else { return }
    var digest = StateDigest()
    digest.add(record)
    content = digest.low
  }

  /// XXH3-64 of a key, seed 0.
  package static func hash(_ key: [UInt8]) -> UInt64 { XXH3.hash64(key, seed: 0) }

  /// The bucket of a key with this hash.
  package static func bucket(of keyHash: UInt64) -> UInt16 { UInt16(truncatingIfNeeded: keyHash) }

  /// The hashes, ascending, of the keys whose records differ: one side has another value than the other, or
  /// none. Both lists must be of the same buckets.
  package static func differences(_ mine: [RecordFingerprint], _ theirs: [RecordFingerprint]) -> [UInt64] {
    var others: [UInt64: RecordFingerprint] = [:]
    for print in theirs { others[print.keyHash] = print }
    var differing: [UInt64] = []
    for print in mine {
      let other = others.removeValue(forKey: print.keyHash)
      if !print.agrees(with: other) { differing.append(print.keyHash) }
    }
    for other in others.values where !other.agrees(with: nil) { differing.append(other.keyHash) }
    return differing.sorted()
  }

  private func agrees(with other: RecordFingerprint?) -> Bool {
    let theirs = other?.state ?? .dead
    if state == .newer || theirs == .newer { return true }
    return state == theirs && content == other?.content ?? 0
  }
}

/// The fingerprints of some buckets.
package struct BucketFingerprints: Sendable {
  /// The buckets, ascending.
  package var buckets: [UInt16]
  /// The fingerprints by bucket, in the order of `buckets`, and by hash in each bucket.
  package var prints: [RecordFingerprint] = []
  /// The keys by their hash: mostly one.
  package var keys: [UInt64: [[UInt8]]] = [:]

  init(buckets: [UInt16]) { self.buckets = buckets }

  /// All keys of one hash.
  struct Entry {
    var print: RecordFingerprint
    var keys: [[UInt8]] = []

    init(keyHash: UInt64) { print = RecordFingerprint(keyHash: keyHash, state: .dead, content: 0) }

    /// Combines keys that have the same hash: they are compared as one, and both are sent.
    mutating func add(_ other: RecordFingerprint, _ key: [UInt8]) {
      keys.append(key)
      print.content &+= other.content
      if other.state.rawValue > print.state.rawValue { print.state = other.state }
    }
  }
}

import SyncStore

extension Oracle {
  /// The content a program asks to store for a key.
  struct Content: Hashable, CustomStringConvertible {
    /// Nil for a delete.
    var bytes: [UInt8]?
    /// Milliseconds since 1970; 0 for none.
    var deadline: UInt64 = 0

    static let deleted = Content(bytes: nil)

    /// Written values all differ in their first bytes: hashing those suffices.
    func hash(into hasher: inout Hasher) {
      hasher.combine(bytes?.count)
      hasher.combine(deadline)
      for byte in bytes?.prefix(16) ?? [] { hasher.combine(byte) }
    }

    /// The drift limit of the design, in milliseconds.
    static let drift: UInt64 = 60_000

    /// Whether it is stored in the blob tier.
    var isLarge: Bool { (bytes?.count ?? 0) > Simulation.configuration.blobThreshold }

    /// Whether the value can be read at a time.
    func isLive(at time: UInt64) -> Bool { bytes != nil && (deadline == 0 || deadline > time) }

    /// Whether it may have been purged, leaving no record of its key. No clock has ever shown more than
    /// `latest`.
    func mayBePurged(by latest: UInt64) -> Bool {
      bytes == nil || deadline > 0 && deadline + Self.drift < latest
    }

    var description: String {
      (bytes.map { "\($0.count) bytes \($0.prefix(12))" } ?? "a delete")
        + (deadline > 0 ? " until \(deadline)" : "")
    }
  }

  /// The writes requested by one call.
  struct Asked: CustomStringConvertible {
    var key: Key
    var content: Content

    var description: String { "\(content) for \(key)" }
  }

  /// A write of a user's key.
  struct Write: Hashable, CustomStringConvertible {
    /// All 64 bits of the stamp.
    var stamp: UInt64
    var dot: Dot
    var key: Key
    var content: Content

    var description: String { "\(dot) of \(key) (\(content))" }

    /// Resolution order of writes: stamp, bytes of the actor, sequence.
    static func < (left: Self, right: Self) -> Bool {
      if left.stamp != right.stamp { return left.stamp < right.stamp }
      if left.dot.actor != right.dot.actor {
        return left.dot.actor.bytes.lexicographicallyPrecedes(right.dot.actor.bytes)
      }
      return left.dot.sequence < right.dot.sequence
    }
  }

  /// Writes of one transaction.
  struct Transaction {
    /// Those found so far, and their total number.
    var dots: [Dot] = []
    var count: Int
  }

  /// A version vector: the last covered sequence of each actor.
  struct Coverage: Hashable {
    private var sequences: [ActorID: UInt64] = [:]

    init(_ vector: VersionVector) {
      vector.forEach { sequences[$0.actor] = $0.sequence }
    }

    func last(of actor: ActorID) -> UInt64 { sequences[actor] ?? 0 }
    func has(_ dot: Dot) -> Bool { last(of: dot.actor) >= dot.sequence }

    /// Whether all of the other's coverage is covered, ignoring this actor's writes.
    func has(_ other: Coverage, but actor: ActorID? = nil) -> Bool {
      other.sequences.allSatisfy { $0.key == actor || last(of: $0.key) >= $0.value }
    }
  }
}

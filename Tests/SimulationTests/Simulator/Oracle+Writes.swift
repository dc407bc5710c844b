import SyncStore

extension Oracle {
  /// What a program asks to be kept of a key.
  struct Content: Hashable, CustomStringConvertible {
    /// Nil for a delete.
    var bytes: [UInt8]?
    /// Milliseconds since 1970; 0 for none.
    var deadline: UInt64 = 0

    static let deleted = Content(bytes: nil)

    /// No two values that are written begin alike: what lies behind their beginning need not be hashed.
    func hash(into hasher: inout Hasher) {
      hasher.combine(bytes?.count)
      hasher.combine(deadline)
      for byte in bytes?.prefix(16) ?? [] { hasher.combine(byte) }
    }

    /// By how many milliseconds two clocks may differ, as the design has it.
    static let drift: UInt64 = 60_000

    /// Does it lie in the blob tier?
    var isLarge: Bool { (bytes?.count ?? 0) > Simulation.configuration.blobThreshold }

    /// Is there a value to be read at a time?
    func isLive(at time: UInt64) -> Bool { bytes != nil && (deadline == 0 || deadline > time) }

    /// May it have been purged, so that nothing is held of its key? No clock has ever shown more than `latest`.
    func mayBePurged(by latest: UInt64) -> Bool {
      bytes == nil || deadline > 0 && deadline + Self.drift < latest
    }

    var description: String {
      (bytes.map { "\($0.count) bytes \($0.prefix(12))" } ?? "a delete")
        + (deadline > 0 ? " until \(deadline)" : "")
    }
  }

  /// What one call was asked for.
  struct Asked: CustomStringConvertible {
    var key: Key
    var content: Content

    var description: String { "\(content) for \(key)" }
  }

  /// A write of a user's key.
  struct Write: Hashable, CustomStringConvertible {
    /// The stamp's 64 bits.
    var stamp: UInt64
    var dot: Dot
    var key: Key
    var content: Content

    var description: String { "\(dot) of \(key) (\(content))" }

    /// The order in which writes beat each other: by stamp, by the bytes of the actor, by sequence.
    static func < (left: Self, right: Self) -> Bool {
      if left.stamp != right.stamp { return left.stamp < right.stamp }
      if left.dot.actor != right.dot.actor {
        return left.dot.actor.bytes.lexicographicallyPrecedes(right.dot.actor.bytes)
      }
      return left.dot.sequence < right.dot.sequence
    }
  }

  /// Writes that were made at once.
  struct Transaction {
    /// Those that were found, and how many there must be.
    var dots: [Dot] = []
    var count: Int
  }

  /// What a vector says: of each actor, the last sequence that is covered.
  struct Coverage: Hashable {
    private var sequences: [ActorID: UInt64] = [:]

    init(_ vector: VersionVector) {
      vector.forEach { sequences[$0.actor] = $0.sequence }
    }

    func last(of actor: ActorID) -> UInt64 { sequences[actor] ?? 0 }
    func has(_ dot: Dot) -> Bool { last(of: dot.actor) >= dot.sequence }

    /// Is all covered that the other covers, but for what this actor wrote?
    func has(_ other: Coverage, but actor: ActorID? = nil) -> Bool {
      other.sequences.allSatisfy { $0.key == actor || last(of: $0.key) >= $0.value }
    }
  }
}

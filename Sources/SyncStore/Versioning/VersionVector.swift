/// For each actor, the sequence up to which all of its writes are covered (rule R6).
public struct VersionVector: Hashable, Sendable {
  private var entries: [ActorID: UInt64]

  /// Covers nothing.
  public init() { entries = [:] }

  /// Covers what `entries` says; zeros are left out, so that equal vectors compare equal.
  public init(_ entries: [ActorID: UInt64]) { self.entries = entries.filter { $0.value > 0 } }

  /// The number of actors of which anything is covered.
  public var count: Int { entries.count }
  /// True if nothing is covered.
  public var isEmpty: Bool { entries.isEmpty }
  /// The actors of which anything is covered, in order.
  public var actors: [ActorID] { entries.keys.sorted() }

  /// The sequence up to which `actor` is covered; 0 if not at all. Setting 0 forgets the actor.
  public subscript(actor: ActorID) -> UInt64 {
    get { entries[actor] ?? 0 }
    set { entries[actor] = newValue == 0 ? nil : newValue }
  }

  /// Is this write covered?
  public func covers(_ dot: Dot) -> Bool { self[dot.actor] >= dot.sequence }

  /// Is everything that `other` covers covered?
  public func covers(_ other: VersionVector) -> Bool {
    other.entries.allSatisfy { self[$0.key] >= $0.value }
  }

  /// What of it goes beyond `other`.
  package func beyond(_ other: VersionVector) -> VersionVector {
    // Mostly both are one in memory, which is noticed at once.
    if entries == other.entries { return VersionVector() }
    var difference = VersionVector()
    difference.entries = entries.filter { $0.value > other[$0.key] }
    return difference
  }

  /// Covers from now on what either covers.
  public mutating func merge(_ other: VersionVector) {
    entries.merge(other.entries) { max($0, $1) }
  }
}

extension VersionVector: CustomStringConvertible {
  /// `actor:sequence` for each actor, in order, separated by blanks.
  public var description: String {
    actors.map { "\($0):\(self[$0])" }.joined(separator: " ")
  }
}

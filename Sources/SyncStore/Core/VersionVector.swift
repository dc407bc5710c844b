/// For each actor, the sequence up to which all of its writes are covered (rule R6).
///
/// Sorted by actor: with thousands of actors, two vectors are compared and merged in one pass through memory,
/// and changing an entry moves nothing.
public struct VersionVector: Hashable, Sendable {
  private struct Entry: Hashable, Sendable {
    var actor: ActorID
    var sequence: UInt64
  }

  /// Ascending by actor, no sequence 0: equal vectors compare equal.
  private var entries: [Entry]

  /// Covers nothing.
  public init() { entries = [] }

  /// Covers `entries`; zeros are left out, so that equal vectors compare equal.
  public init(_ entries: [ActorID: UInt64]) {
    self.entries = entries.lazy.filter { $0.value > 0 }.map { Entry(actor: $0.key, sequence: $0.value) }
      .sorted { $0.actor < $1.actor }
  }

  /// The number of actors with covered writes.
  public var count: Int { entries.count }
  /// True if nothing is covered.
  public var isEmpty: Bool { entries.isEmpty }
  /// The actors with covered writes, in order.
  public var actors: [ActorID] { entries.map(\.actor) }

  /// The sequence up to which `actor` is covered; 0 if not at all. Setting 0 removes the actor.
  public subscript(actor: ActorID) -> UInt64 {
    get {
      let place = place(of: actor)
      return place < entries.count && entries[place].actor == actor ? entries[place].sequence : 0
    }
    set {
      let place = place(of: actor)
      guard place < entries.count, entries[place].actor == actor else {
        if newValue > 0 { entries.insert(Entry(actor: actor, sequence: newValue), at: place) }
        return
      }
      if newValue > 0 { entries[place].sequence = newValue } else { entries.remove(at: place) }
    }
  }

  /// Calls `body` with the last covered write of each actor, in order.
  package func forEach(_ body: (Dot) -> Void) {
    for entry in entries { body(Dot(actor: entry.actor, sequence: entry.sequence)) }
  }

  /// Index at which the actor is or would be.
  private func place(of actor: ActorID) -> Int {
    // Fast path: decoded vectors arrive in order.
    guard let last = entries.last, actor <= last.actor else { return entries.count }
    var (low, high) = (0, entries.count - 1)
    while low < high {
      let middle = (low + high) / 2
      if entries[middle].actor < actor { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// True if the write is covered.
  public func covers(_ dot: Dot) -> Bool { self[dot.actor] >= dot.sequence }

  /// True if everything that `other` covers is covered.
  public func covers(_ other: VersionVector) -> Bool {
    guard other.entries.count <= entries.count else { return false }
    // Few entries against many: look them up.
    if other.entries.count * Self.few < entries.count {
      return other.entries.allSatisfy { self[$0.actor] >= $0.sequence }
    }
    var place = 0
    for wanted in other.entries {
      while place < entries.count, entries[place].actor < wanted.actor { place += 1 }
      guard place < entries.count, entries[place].actor == wanted.actor,
        entries[place].sequence >= wanted.sequence
      else { return false }
      place += 1
    }
    return true
  }

  private static let few = 16

  /// The entries that exceed those of `other`.
  package func beyond(_ other: VersionVector) -> VersionVector {
    var difference = VersionVector()
    // Mostly both share their memory, which makes this comparison immediate.
    if entries == other.entries { return difference }
    var place = 0
    for own in entries {
      while place < other.entries.count, other.entries[place].actor < own.actor { place += 1 }
      if place < other.entries.count, other.entries[place].actor == own.actor,
        other.entries[place].sequence >= own.sequence
      {
        continue
      }
      difference.entries.append(own)
    }
    return difference
  }

  /// Merges `other`: the result covers everything that either covers.
  public mutating func merge(_ other: VersionVector) {
    // Mostly one covers the other: then the result shares its memory.
    if covers(other) { return }
    if other.covers(self) {
      self = other
      return
    }
    if other.entries.count * Self.few < entries.count {
      for entry in other.entries where self[entry.actor] < entry.sequence {
        self[entry.actor] = entry.sequence
      }
      return
    }
    var merged: [Entry] = []
    merged.reserveCapacity(entries.count + other.entries.count)
    var (own, theirs) = (entries[...], other.entries[...])
    while let one = own.first, let another = theirs.first {
      if one.actor < another.actor {
        merged.append(own.removeFirst())
      } else if another.actor < one.actor {
        merged.append(theirs.removeFirst())
      } else {
        merged.append(one.sequence >= another.sequence ? one : another)
        own.removeFirst()
        theirs.removeFirst()
      }
    }
    entries = merged + own + theirs
  }
}

extension VersionVector: CustomStringConvertible {
  /// `actor:sequence` for each actor, in order, separated by spaces.
  public var description: String {
    entries.map { "\($0.actor):\($0.sequence)" }.joined(separator: " ")
  }
}

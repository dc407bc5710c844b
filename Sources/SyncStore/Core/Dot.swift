/// The name of one write: its actor and the actor's dense, never reused sequence number (from 1).
public struct Dot: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The author.
  public let actor: ActorID
  /// The number of the write among those of that actor, from 1.
  public let sequence: UInt64

  /// The dot of the write `sequence` of `actor`.
  public init(actor: ActorID, sequence: UInt64) {
    self.actor = actor
    self.sequence = sequence
  }

  /// `actor:sequence`, the actor in hex.
  public var description: String { "\(actor):\(sequence)" }

  /// By actor, then by sequence.
  public static func < (left: Dot, right: Dot) -> Bool {
    (left.actor, left.sequence) < (right.actor, right.sequence)
  }
}

extension Dot: LosslessStringConvertible {
  /// The dot that `description` wrote; nil if the text is no dot.
  public init?(_ text: String) {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count == 2, let actor = ActorID(parts[0]), let sequence = UInt64(parts[1]), sequence > 0
    else { return nil }
    self.init(actor: actor, sequence: sequence)
  }
}

/// Decides between two records of one key: the greater of (stamp, actor, sequence) wins, on every copy.
public struct Version: Hashable, Comparable, Sendable {
  /// Time of the write, from its author's hybrid clock.
  public let stamp: Stamp
  /// The name of the write.
  public let dot: Dot

  /// The version of the write `dot`, stamped `stamp`.
  public init(stamp: Stamp, dot: Dot) {
    self.stamp = stamp
    self.dot = dot
  }

  /// The order of resolution: total, and the same everywhere.
  public static func < (left: Version, right: Version) -> Bool {
    (left.stamp, left.dot) < (right.stamp, right.dot)
  }
}

/// An executable model of the rules of versions and replication (R5 to R10), without bytes, files, clock or
/// randomness. Every operation is a value, so a run is an array that can be kept, replayed and shrunk.
///
/// Each rule has a switch (`Model.Rules`), and each was found through a history that breaks without it. Terms
/// are those of `docs/architecture.md`, and:
/// - a *mark* names a round, and is durable at the sender before a record of the round leaves;
/// - *suspects* are own records whose dots a lost fork of the copy may also have used.
enum Model {
  /// Stamps per unit of time, as in the golden histories.
  static let tick = 64
  /// The drift limit, in units of time.
  static let drift = 3
  /// The retirement period.
  static let retirement = 80
  /// How far into the future a wrong clock stamps.
  static let ahead = 30
  /// Keys from here on are reserved: `member + m` is the frontier of member m.
  static let member = 1000
  /// Maximum number of copies.
  static let mostCopies = 7
  /// Deadline of a record that never expires.
  static let never = Int.max

  /// One incarnation of a copy, numbered from 1; names have no particular order.
  struct Actor: Hashable, Comparable, CustomStringConvertible {
    let number: Int
    /// Comparison key.
    let name: Int

    init(number: Int) {
      self.number = number
      name = number * 37 % 101 * 100 + number
    }

    var description: String { "a\(name)" }
    static func < (left: Actor, right: Actor) -> Bool { left.name < right.name }
    static func == (left: Actor, right: Actor) -> Bool { left.number == right.number }
  }

  struct Dot: Hashable, CustomStringConvertible {
    let actor: Actor
    let sequence: Int
    var description: String { "\(actor):\(sequence)" }
  }

  /// One write. Two equal values are one write; in a fork one dot has two contents.
  struct Record: Equatable, CustomStringConvertible {
    /// Serial number in its world; rarely needed details are in `World.pasts`.
    let number: Int
    let stamp: Int
    let actor: Actor
    let sequence: Int
    let key: Int
    let value: Int
    let isDead: Bool
    let deadline: Int

    var dot: Dot { Dot(actor: actor, sequence: sequence) }
    var isReserved: Bool { key >= Model.member }

    static func == (left: Record, right: Record) -> Bool { left.number == right.number }

    /// Resolution order: stamp, actor, sequence.
    func isGreater(than other: Record) -> Bool {
      if stamp != other.stamp { return stamp > other.stamp }
      if actor != other.actor { return actor > other.actor }
      return sequence > other.sequence
    }

    /// Same position in that order, whatever the content.
    func hasOrder(of other: Record) -> Bool {
      stamp == other.stamp && actor == other.actor && sequence == other.sequence
    }

    /// Dead on every clock.
    func isGone(at wall: Int) -> Bool { isDead || (deadline != Model.never && deadline + Model.drift < wall) }
    /// Dead on any clock within the drift limit.
    func isDead(at now: Int) -> Bool { isDead || deadline <= now + Model.drift }
    /// Whether it has a value on this clock.
    func isLive(at wall: Int) -> Bool { !isDead && deadline > wall }

    var description: String {
      "<\(isDead ? "delete" : "put") k\(key) \(dot) @\(stamp) v\(value)>"
    }
  }

  /// History of a record: what it states, or the oracle knows, about the records it replaced.
  struct Past {
    /// The newest replaced dot by another actor.
    var base: Dot?
    /// Replaced dots that its author's vector did not cover.
    var open: [Dot] = []
    /// Everything it replaced, directly or indirectly: known to the oracle only.
    var replaced: [Dot] = []
    /// The vector stated by a frontier.
    var frontier = Vector()
  }

  /// A violated rule.
  struct Violation: Error, CustomStringConvertible {
    /// The invariant: I1 … I8, IR, R9.
    let name: String
    let text: String
    var description: String { "\(name): \(text)" }
  }
}

extension Model {
  /// A value per actor; absent ones count as `Value.none`.
  struct Table<Value: Equatable>: Equatable {
    /// Indexed by actor number; the last one is not absent.
    private(set) var values: [Value?] = []

    subscript(actor: Actor) -> Value? {
      get { actor.number < values.count ? values[actor.number] : nil }
      set {
        while values.count <= actor.number { values.append(nil) }
        values[actor.number] = newValue
        while let last = values.last, last == nil { values.removeLast() }
      }
    }

    /// In order of actor number.
    var pairs: [(actor: Actor, value: Value)] {
      values.indices.compactMap { number in values[number].map { (Actor(number: number), $0) } }
    }
  }

  /// Version vector: for each actor the sequence up to which all its writes are covered.
  struct Vector: Equatable {
    /// Indexed by actor number; the last one is not zero.
    private(set) var sequences: [Int] = []

    var isEmpty: Bool { sequences.isEmpty }

    subscript(actor: Actor) -> Int {
      get { actor.number < sequences.count ? sequences[actor.number] : 0 }
      set {
        while sequences.count <= actor.number { sequences.append(0) }
        sequences[actor.number] = newValue
        while sequences.last == 0 { sequences.removeLast() }
      }
    }

    func covers(_ dot: Dot) -> Bool { self[dot.actor] >= dot.sequence }

    func covers(_ other: Vector) -> Bool {
      guard other.sequences.count <= sequences.count else { return false }
      for number in other.sequences.indices where sequences[number] < other.sequences[number] { return false }
      return true
    }

    mutating func merge(_ other: Vector) {
      for number in other.sequences.indices
      where other.sequences[number] > (number < sequences.count ? sequences[number] : 0) {
        self[Actor(number: number)] = other.sequences[number]
      }
    }

    /// In order of actor number.
    var pairs: [(actor: Actor, sequence: Int)] {
      sequences.indices.filter { sequences[$0] > 0 }.map { (Actor(number: $0), sequences[$0]) }
    }
  }
}

/// The incarnations of this copy (rule R9), and which of their writes are in doubt.
struct Incarnations: Sendable {
  /// Own records of a lost incarnation whose dots that one may also have given to other writes.
  struct UnconfirmedRange: Hashable, Sendable {
    var actor: ActorID
    /// The range has the sequences above this one.
    var above: UInt64

    /// True if the write is in the range.
    func includes(_ dot: Dot) -> Bool { dot.actor == actor && dot.sequence > above }
  }

  /// All of them, the present one included. An array, since they are few: for a hash table the runtime would
  /// take a quarter of a process's first opening.
  var all: [ActorID] = []
  var unconfirmedRanges: [UnconfirmedRange] = []
  /// Those that this copy gave up because it was rolled back or cloned: another one may still use them.
  var abandoned: Set<ActorID> = []
  /// By former actor: its writes that were retracted.
  var retracted: [ActorID: RetractedWrites] = [:]

  mutating func add(_ actor: ActorID) {
    if !all.contains(actor) { all.append(actor) }
  }

  /// True if one of them made the write. False for a retracted write, should a copy of the directory bring it
  /// back.
  func made(_ dot: Dot) -> Bool {
    all.contains(dot.actor) && (retracted.isEmpty || dot.sequence <= retracted[dot.actor]?.above ?? .max)
  }

  /// True if the record is one of a lost incarnation that must not be sent.
  func isUnconfirmed(_ dot: Dot) -> Bool { unconfirmedRanges.contains { $0.includes(dot) } }

  /// True if the dot may have two contents, one of each incarnation. Also below the last mark, and
  /// permanently: that one peer received a round says nothing about what the other one wrote under these
  /// names, nor which of the two a base refers to.
  func isAmbiguous(_ dot: Dot) -> Bool { abandoned.contains(dot.actor) || isInUnconfirmedIncarnation(dot) }

  /// True if it was written in an incarnation for which no full state has shown yet what other copies hold of
  /// it.
  func isInUnconfirmedIncarnation(_ dot: Dot) -> Bool { unconfirmedRanges.contains { $0.actor == dot.actor } }

  /// `vector` without the unconfirmed writes. They are not sent, so a receiver must not cover them, although
  /// this copy itself must cover later writes of that incarnation that it may have purged.
  func confirmed(of vector: VersionVector) -> VersionVector {
    var confirmed = vector
    for range in unconfirmedRanges { confirmed[range.actor] = min(confirmed[range.actor], range.above) }
    return confirmed
  }
}

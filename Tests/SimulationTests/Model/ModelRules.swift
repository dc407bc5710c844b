extension Model {
  /// One switch for each rule. All on: the design. Off: the design as somebody in a hurry would build it.
  struct Rules {
    /// Full state when the receiver does not cover the sender's floor (off: when the sender thinks it retired).
    var floor = true
    /// Who takes full state takes over the sender's floor and horizon.
    var inherit = true
    /// Full state issues again every uncovered record at risk (off: only those of own actors).
    var reissuesAny = true
    /// An uncovered live record at or below the receiver's horizon, to a key not held, is issued again.
    var horizon = true
    /// … to any key not held live (off: only to one of which nothing is held).
    var horizonOfAny = true
    /// Full state treats parked records like held ones.
    var parkedRisk = true
    /// Full state lifts the receiver's clock above the sender's horizon.
    var mergesClock = true
    /// A frontier counts for a tombstone only if it was stamped after it.
    var frontierStamped = true
    /// … and only if the purger's vector covers all of the frontier.
    var frontierContained = true
    /// A dead record with open dots is not purged.
    var openBases = true
    /// The winner over a record with open dots is issued again with their names.
    var openPassed = true
    /// Purging and compaction do not change a round under way.
    var snapshot = true
    /// Superseded records and kept losers do not travel.
    var winnersOnly = true
    /// Older records of a key leave the journal before its tombstone, or with it.
    var purgesOlder = true
    /// Bytes leave the journal only when what replaces them is durable.
    var durableFirst = true
    /// R7: a record leaves for a peer only once it is durable.
    var shipsDurable = true
    /// A copied directory is cut at its durable watermark when it is first opened.
    var cutsClones = true
    /// The receiver ignores what its vector covers by now.
    var ignoresCovered = true
    /// The vector is merged when the round closes (off: when it begins).
    var wholeRound = true
    /// R9: a cursor whose mark the sender does not know means that the sender was rolled back.
    var cursorMark = true
    /// R9: a peer that knows more of an actor than it does itself means the same.
    var echo = true
    /// A rolled-back copy issues again what it wrote above its last mark.
    var suspects = true
    /// … and forgets its old actor's vector entry and all cursors.
    var forgets = true
    /// Digests differ in step: the differing keys are issued again.
    var repairs = true
    /// From a narrower sender only its own entry is merged, and only if the rest is covered.
    var narrow = true
    /// The digest takes the greatest record of a key, parked or not.
    var digestParked = true
    /// Deadlines are judged at a stated time, and purged a drift limit later.
    var digestTime = true
    /// Digests are compared only with equal vectors and each cursor at the other's end.
    var digestInStep = true
    /// A copy damaged below its watermark forgets vector and cursors and becomes a new actor.
    var mends = true
    /// A dead record is not purged while another record of its key is parked: that would come alive in its time.
    var parkedKept = true
    /// Of records of one key whose time has come together only the greatest is issued again, with the names of all that it beats.
    var releasesTogether = true
    /// What is issued again at or below a horizon is so even if it has expired: the clock that says so may be wrong.
    var reissuesExpired = true
    /// A damaged copy's vector is forgotten at once (off: when it is mended; until then it names what may be lost).
    var forgetsDamaged = true
    /// What two lives of one copy wrote to one key is a conflict, whatever names and bases say.
    var keepsDoubtful = true
    /// A copy in doubt gives no full state whose vector lies below the floor that comes with it.
    var givesCovered = true
    /// A copy in doubt issues again what is in doubt and not covered by a receiver, before it gives it a round.
    var reissuesUnknown = true
    /// Own writes are parked like others. The store does not do so: decision 5.
    var parksOwn = true

    /// A rule, and what it is called on a command line.
    struct Switch {
      let name: String
      let path: WritableKeyPath<Rules, Bool>
      /// Which histories can show that it is needed.
      let kind: History.Kind
      /// Are damaged records part of them?
      var damages = false
      /// Do some thousand random histories miss it?
      var isFoundByChance = true
    }

    /// Every rule that a history breaks without.
    static var switches: [Switch] {
      [
        Switch(name: "floor", path: \.floor, kind: .anything),
        Switch(name: "inherit", path: \.inherit, kind: .anything),
        Switch(name: "reissues-any", path: \.reissuesAny, kind: .anything),
        Switch(name: "horizon", path: \.horizon, kind: .anything),
        Switch(name: "horizon-of-any", path: \.horizonOfAny, kind: .anything),
        Switch(name: "parked-risk", path: \.parkedRisk, kind: .anything, isFoundByChance: false),
        Switch(name: "merges-clock", path: \.mergesClock, kind: .anything),
        Switch(name: "frontier-stamped", path: \.frontierStamped, kind: .anything, isFoundByChance: false),
        Switch(
          name: "frontier-contained", path: \.frontierContained, kind: .anything, isFoundByChance: false),
        Switch(name: "open-bases", path: \.openBases, kind: .anything),
        Switch(name: "open-passed", path: \.openPassed, kind: .anything, isFoundByChance: false),
        Switch(name: "snapshot", path: \.snapshot, kind: .anything),
        Switch(name: "winners-only", path: \.winnersOnly, kind: .anything),
        Switch(name: "purges-older", path: \.purgesOlder, kind: .anything),
        Switch(name: "durable-first", path: \.durableFirst, kind: .anything),
        Switch(name: "ships-durable", path: \.shipsDurable, kind: .anything),
        Switch(name: "cuts-clones", path: \.cutsClones, kind: .anything),
        Switch(name: "ignores-covered", path: \.ignoresCovered, kind: .anything),
        Switch(name: "whole-round", path: \.wholeRound, kind: .anything),
        Switch(name: "cursor-mark", path: \.cursorMark, kind: .rollbacks),
        Switch(name: "echo", path: \.echo, kind: .rollbacks),
        Switch(name: "suspects", path: \.suspects, kind: .rollbacks),
        Switch(name: "forgets", path: \.forgets, kind: .rollbacks),
        Switch(name: "gives-covered", path: \.givesCovered, kind: .rollbacks),
        Switch(
          name: "reissues-unknown", path: \.reissuesUnknown, kind: .rollbacks, isFoundByChance: false),
        Switch(name: "repairs", path: \.repairs, kind: .rollbacks),
        Switch(name: "narrow", path: \.narrow, kind: .selective),
        Switch(name: "digest-parked", path: \.digestParked, kind: .anything),
        Switch(name: "digest-time", path: \.digestTime, kind: .anything),
        Switch(name: "digest-in-step", path: \.digestInStep, kind: .anything),
        Switch(name: "parked-kept", path: \.parkedKept, kind: .clocks, isFoundByChance: false),
        Switch(name: "releases-together", path: \.releasesTogether, kind: .clocks, isFoundByChance: false),
        Switch(name: "reissues-expired", path: \.reissuesExpired, kind: .clocks, isFoundByChance: false),
        Switch(
          name: "forgets-damaged", path: \.forgetsDamaged, kind: .anything, damages: true,
          isFoundByChance: false),
        Switch(name: "mends", path: \.mends, kind: .anything, damages: true),
      ]
    }
  }
}

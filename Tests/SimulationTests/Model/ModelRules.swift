extension Model {
  /// One switch per rule. All on: the design. Off: a hasty implementation.
  struct Rules {
    /// Full state when the receiver does not cover the sender's floor (off: when the sender considers it
    /// retired).
    var floor = true
    /// A receiver of full state adopts the sender's floor and horizon.
    var inherit = true
    /// Full state reissues every uncovered record at risk (off: only those of own actors).
    var reissuesAny = true
    /// An uncovered live record at or below the receiver's horizon, to a key not held, is reissued.
    var horizon = true
    /// … to any key not held live (off: only to a key without any record).
    var horizonOfAny = true
    /// Full state treats parked records like held ones.
    var parkedRisk = true
    /// Full state raises the receiver's clock above the sender's horizon.
    var mergesClock = true
    /// A frontier counts for a tombstone only if it was stamped after the tombstone.
    var frontierStamped = true
    /// … and only if the purger's vector covers all of the frontier.
    var frontierContained = true
    /// A dead record with open dots is not purged.
    var openBases = true
    /// The winner over a record with open dots is reissued with their names.
    var openPassed = true
    /// Purging and compaction do not change a round in progress.
    var snapshot = true
    /// Superseded records and kept losers are not sent.
    var winnersOnly = true
    /// Older records of a key leave the journal before its tombstone, or with it.
    var purgesOlder = true
    /// Bytes leave the journal only when their replacement is durable.
    var durableFirst = true
    /// R7: a record leaves for a peer only once it is durable.
    var shipsDurable = true
    /// A copied directory is cut at its durable watermark when it is first opened.
    var cutsClones = true
    /// The receiver skips records that its vector now covers.
    var ignoresCovered = true
    /// The vector is merged when the round closes (off: when it begins).
    var wholeRound = true
    /// R9: a cursor whose mark the sender does not know means that the sender was rolled back.
    var cursorMark = true
    /// R9: so does a peer that knows more writes of an actor than the actor itself.
    var echo = true
    /// A rolled-back copy reissues its writes above its last mark.
    var suspects = true
    /// … and forgets its old actor's vector entry and all cursors.
    var forgets = true
    /// Digests differ after convergence: the differing keys are reissued.
    var repairs = true
    /// From a narrower sender only its own entry is merged, and only if the rest is covered.
    var narrow = true
    /// The digest takes the greatest record of a key, parked or not.
    var digestParked = true
    /// Deadlines are judged at a stated time, and expired records purged one drift limit later.
    var digestTime = true
    /// Digests are compared only with equal vectors and each cursor at the other's end.
    var digestInStep = true
    /// A copy damaged below its watermark forgets vector and cursors and becomes a new actor.
    var mends = true
    /// A dead record is not purged while another record of its key is parked, which would otherwise come
    /// alive later.
    var parkedKept = true
    /// Of records of one key that come due together only the greatest is reissued, naming all that it beats.
    var releasesTogether = true
    /// A record at or below a horizon is reissued even if it has expired: the clock may be wrong.
    var reissuesExpired = true
    /// A damaged copy's vector is forgotten at once (off: on recovery; until then it names records that may
    /// be lost).
    var forgetsDamaged = true
    /// Writes of two forks of one copy to one key conflict, whatever their dots and bases.
    var keepsDoubtful = true
    /// An unconfirmed copy sends no full state if its vector is below the floor sent with it.
    var givesCovered = true
    /// An unconfirmed copy reissues suspect records that a receiver does not cover before sending it a round.
    var reissuesUnknown = true
    /// Own writes are parked like others. The store does not do so: decision 5.
    var parksOwn = true
    var relay = RelayRules()

    /// A rule and its command-line name.
    struct Switch {
      let name: String
      let path: WritableKeyPath<Rules, Bool>
      /// Kind of histories that can show it is needed.
      let kind: History.Kind
      /// Whether damaged records are part of them.
      var damages = false
      /// How copies exchange records, and whether the relay loses entries.
      var use = Relay.Use.none
      var losesEntries = false
      var mixture: History.Mixture {
        History.Mixture(kind: kind, damages: damages, use: use, losesEntries: losesEntries)
      }
      /// Whether thousands of random histories may miss it.
      var isFoundByChance = true
    }

    /// Every rule whose absence some history detects.
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

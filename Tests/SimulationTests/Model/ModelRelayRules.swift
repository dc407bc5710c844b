extension Model {
  /// One switch per rule of the relay (L1 to L12 of `docs/rules.md`). All on: the design. Off: a hasty
  /// implementation.
  struct RelayRules {
    /// L1: the vector of an entry is merged only after all its records.
    var wholeEntry = true
    /// L2: an entry leaves only after its mark, and what it contains, are durable at its publisher.
    var marksFirst = true
    /// L2: an entry is created only if its name is free; its mark tells whose it is.
    var createsOnce = true
    /// L3: an entry is closed only after the entries that it presumes.
    var awaitsDeps = true
    /// L4: an entry whose floor the reader does not cover is no increment: the reader needs a checkpoint.
    var floor = true
    /// L4: … as a full state if the reader does not cover the checkpoint's floor, or is in doubt.
    var fullState = true
    /// L5: an entry whose floor is not covered by what it presumes comes with a checkpoint, written before
    /// it.
    var lifts = true
    /// L6: each entry names the mark of the one before it.
    var chains = true
    /// L6: where a stream lost entries, the copies that read or wrote them start over, with a new stream.
    var detectsLoss = true
    /// L6: a checkpoint counts only while the entries that it stands for are there.
    var standing = true
    /// L7: a copy in doubt (suspects, damage, floor not covered) publishes nothing.
    var publishesSound = true
    /// L8: an entry of the reader's actor in a stream that the reader did not begin means two lives of one
    /// actor.
    var twins = true
    /// L9: R9 also by what entries know of the reader.
    var echo = true
    /// L9: a copy that was rolled back, or is damaged, forgets what it has seen, as it forgets its cursors.
    var forgetsSeen = true
    /// L10: with equal vectors, and nothing else held, digests must be equal; if not, keys are compared with
    /// a checkpoint.
    var digests = true
    /// L11: the last entry of a stream is not collected.
    var keepsLast = true
    /// L12: the close of a selective publisher is merged as soon as the rest is covered.
    var owes = true
  }
}

extension Model.Rules {
  /// Every rule of the relay, with the histories that can show it is needed.
  static var relaySwitches: [Switch] {
    [
      Switch(name: "whole-entry", path: \.relay.wholeEntry, kind: .anything, use: .alone),
      Switch(name: "marks-first", path: \.relay.marksFirst, kind: .anything, use: .alone),
      Switch(name: "creates-once", path: \.relay.createsOnce, kind: .anything, use: .alone),
      Switch(name: "awaits-deps", path: \.relay.awaitsDeps, kind: .anything, use: .alone),
      Switch(name: "relay-floor", path: \.relay.floor, kind: .anything, use: .alone),
      Switch(name: "relay-full-state", path: \.relay.fullState, kind: .anything, use: .alone),
      Switch(name: "lifts", path: \.relay.lifts, kind: .anything, use: .alone),
      Switch(
        name: "chains", path: \.relay.chains, kind: .anything, damages: true, use: .alone,
        losesEntries: true),
      Switch(
        name: "detects-loss", path: \.relay.detectsLoss, kind: .anything, damages: true, use: .alone,
        losesEntries: true),
      Switch(name: "standing", path: \.relay.standing, kind: .anything, use: .alone),
      Switch(
        name: "publishes-sound", path: \.relay.publishesSound, kind: .anything, damages: true, use: .alone),
      Switch(name: "twins", path: \.relay.twins, kind: .rollbacks, use: .alone, isFoundByChance: false),
      Switch(name: "relay-echo", path: \.relay.echo, kind: .rollbacks, use: .alone),
      Switch(name: "forgets-seen", path: \.relay.forgetsSeen, kind: .anything, damages: true, use: .alone),
      Switch(name: "digests", path: \.relay.digests, kind: .rollbacks, use: .alone),
      Switch(name: "keeps-last", path: \.relay.keepsLast, kind: .anything, use: .alone),
      Switch(name: "owes", path: \.relay.owes, kind: .selective, use: .ending, isFoundByChance: false),
    ]
  }
}

import Testing

/// Every rule of the model is needed: without it a short history violates an invariant.
@Suite("The rules of the model")
struct ModelRuleTests {
  /// The shortest history found that breaks without the rule.
  private static let histories: [(rule: String, history: String)] = [
    ("floor", "anything 3 3;p 0 0 0;d 0 0;g 0;p 1 0 0"),
    ("inherit", "anything 5 4;p 2 0 0;p 4 0 0;d 2 0;g 2"),
    ("reissues-any", "anything 5 2;p 2 1 0;p 4 1 0;o 4 3;c 4 3;d 2 1;g 2"),
    ("horizon", "anything 3 2;p 1 1 0;d 1 1;p 0 1 0;g 1"),
    ("horizon-of-any", "anything 3 2;p 2 0 0;j 1 0;t 1;p 3 0 0;d 2 0;j 3 0;d 3 0;g 3"),
    ("merges-clock", "anything 3 1;p 1 0 0;d 1 0;g 1;o 1 2;c 1 2;p 2 0 0"),
    ("open-bases", "anything 5 4;p 4 3 0;o 4 1;v 4 1 3;d 1 3;g 1"),
    ("snapshot", "anything 4 3;p 2 2 0;o 2 0;p 2 2 0;c 2 0"),
    ("purges-older", "anything 2 1;p 1 0 0;p 1 0 2"),
    ("durable-first", "anything 4 2;p 3 1 0;o 3 1;d 3 1;g 3;x 3"),
    ("ships-durable", "anything 2 1;j 1 0;x 2"),
    ("cuts-clones", "anything 2 4;p 0 3 0;x 0"),
    ("ignores-covered", "anything 3 3;p 1 2 0;o 1 2;d 1 2;g 1;o 1 0;c 1 0;o 0 2;c 0 2;v 1 2 3"),
    ("whole-round", "anything 4 2"),
    ("repairs", "rollbacks 5 4;u 0;p 0 1 0;p 5 1 0"),
    ("narrow", "selective 5 4;p 0 3 0;j 0 1;j 5 0"),
    ("digest-parked", "anything 2 1;w 1 9;p 1 0 0;w 1 -1;j 1 0"),
    ("digest-time", "anything 5 4;p 4 2 2;w 4 2;m 4 3"),
    ("digest-in-step", "anything 3 2;p 1 1 0;o 1 2;v 1 2 1;w 0 9;m 2 0"),
    ("mends", "anything 3 4;p 1 1 0;d 1 1;e 1 1"),
    (
      "parked-kept",
      "anything 3 3;p 2 2 0;p 2 1 0;w 2 2;d 2 2;o 2 0;n 2 0;p 2 1 0;o 2 1;d 3 1;v 2 1 3;w 3 -1;o 1 3;c 1 3;g 3"
    ),
    (
      "parked-risk",
      "anything 4 1;f 3 0 0;o 3 0;c 3 0;p 2 0 0;f 2 0 1;t 27;w 2 2;w 0 -1;o 2 1;c 2 1;g 2;s 2;o 2 0;c 2 0"
    ),
    // M has parked the delete; its next write is stamped below the horizon of the copy that purged.
    (
      "frontier-stamped",
      "active 2 1;p 0 0 0;w 0 2;w 1 -1;p 0 0 0;d 0 0;o 0 1;c 0 1;a 1;o 1 0;c 1 0;g 0;p 1 0 0;o 1 0;c 1 0"
    ),
    // The member whose frontier permits the purge holds an older value from 3, which 2 brings to the purging
    // copy.
    (
      "frontier-contained",
      "anything 4 1;p 3 0 0;o 3 2;c 3 2;o 3 1;c 3 1;t 1;p 0 0 0;d 0 0;o 0 1;c 0 1;a 1;o 1 0;v 1 0 9;g 0;o 2 0;c 2 0"
    ),
    (
      "open-passed",
      "anything 4 1;p 1 0 0;o 1 0;v 1 0 1;p 0 0 0;t 1;p 2 0 0;d 2 0;o 2 0;c 2 0;g 0;k 1 0;o 1 3;c 1 3;o 3 0;c 3 0"
    ),
    // Two values come due together: the lesser, reissued with a name, would beat the one that replaced it.
    (
      "releases-together",
      "anything 3 1;p 0 0 0;o 0 1;v 0 1 1;p 1 0 0;w 2 2;w 1 -1;p 2 0 0;p 2 0 0;o 2 1;c 2 1;p 2 0 0;o 2 1;c 2 1;t 4;a 1"
    ),
    ("winners-only", "anything 3 3;p 2 1 0;p 1 0 0;d 1 0;g 1"),
    ("cursor-mark", "rollbacks 2 2;p 1 1 0;b 0;o 1 0;c 1 0;o 0 1;c 0 1;t 1;q 0 0;p 0 1 0"),
    ("echo", "rollbacks 3 3;p 1 0 0;d 1 0;b 1;o 1 2;c 1 2;o 2 0;q 1 2;p 1 1 0;c 2 0"),
    ("suspects", "rollbacks 2 2;p 0 0 0;b 0;o 0 1;c 0 1;q 0 0;p 0 1 0"),
    ("forgets", "rollbacks 2 2;p 0 0 0;b 0;o 0 1;c 0 1;q 0 0;p 0 1 0"),
    // A suspect record hides what it replaced, which then looks dead to the receiver of full state.
    (
      "reissues-unknown",
      "rollbacks 2 1;p 1 0 0;u 1;o 2 0;c 2 0;n 2 0;u 3;p 3 0 0;j 0 0;o 3 4;c 3 4;m 5 4"
    ),
    // Full state from an unconfirmed copy leaves its receiver below its own floor, unable to send any.
    ("gives-covered", "rollbacks 2 3;p 1 0 0;o 1 0;c 1 0;p 0 1 0;u 0;d 0 0;o 2 1;v 2 1 1;g 0"),
    ("reissues-expired", "clocks 3 1;p 2 0 0;o 2 1;c 2 1;w 0 -2;p 0 0 6;o 0 1;d 1 0;w 1 9;g 1;c 0 1"),
    (
      "forgets-damaged",
      "anything 5 3;p 0 2 0;o 0 4;c 0 4;o 4 1;c 4 1;p 1 1 0;o 1 2;c 1 2;e 1 2;d 1 1;o 4 1;c 4 1;g 1"
    ),
  ]

  @Test("each rule is needed by a recorded history", arguments: histories.map(\.rule))
  func isNeeded(name: String) throws {
    let rule = try #require(Model.Rules.switches.first { $0.name == name })
    let kept = try #require(Self.histories.first { $0.rule == name })
    let history = try #require(Model.History(kept.history))
    var rules = Model.Rules()
    #expect(history.play(rules) == nil, "with all rules nothing is wrong")
    rules[keyPath: rule.path] = false
    #expect(history.play(rules) != nil, "without \(name) nothing goes wrong")
  }

  @Test("random histories fail when a rule is switched off (MODEL_RULES)")
  func isFound() throws {
    // Only the rules that are detected fastest; `make model` covers all.
    let most = UInt64(Setting.number("MODEL_RULES", 40))
    for rule in Model.Rules.switches {
      guard
        most > 1000
          || ["snapshot", "durable-first", "cuts-clones", "whole-round", "narrow", "floor"].contains(
            rule.name)
      else { continue }
      var rules = Model.Rules()
      rules[keyPath: rule.path] = false
      let found = (0..<most).first { seed in
        Model.History.random(seed: seed, rule.mixture, rules: rules).violation
          != nil
      }
      if most > 1000 {
        print("\(rule.name): \(found.map { "missed at seed \($0)" } ?? "not missed in \(most) seeds")")
      }
      #expect(found != nil || !rule.isFoundByChance, "\(rule.name): \(most) seeds")
    }
  }
}

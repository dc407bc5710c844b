import Testing

/// Every rule of the relay is needed: without it a short history violates an invariant.
@Suite("The rules of the model of a relay")
struct RelayModelRuleTests {
  /// The shortest history found that breaks without the rule.
  private static let histories: [(rule: String, history: String)] = [
    ("whole-entry", "anything 2 1 alone;p 1 0 0"),
    ("marks-first", "anything 2 4 alone;p 1 1 0;P 1 0;x 1;p 1 2 0;P 1 0"),
    ("creates-once", "anything 2 3 alone;N 0;P 2 0;x 2"),
    ("awaits-deps", "anything 2 3 alone;N 0;p 2 1 0"),
    ("relay-floor", "anything 5 2 alone;p 0 1 0;P 0 0;F 4 0 -1;d 4 1;g 4"),
    ("relay-full-state", "anything 5 2 alone;p 0 1 0;P 0 0;F 4 0 -1;d 4 1;g 4"),
    ("lifts", "anything 2 1 alone;p 0 0 0;d 0 0;g 0;P 0 0"),
    ("chains", "anything 5 1 alone;P 3 1;F 4 0 -1;L 4 1;a 3"),
    ("detects-loss", "anything 2 1 alone;P 1 0;L 3 1"),
    // A checkpoint of an entry that never came takes the place of entries.
    ("standing", "anything 2 3 alone;P 0 0;p 0 2 0;P 0 0;d 0 2;g 0;P 0 2;G -1"),
    ("publishes-sound", "anything 2 2 alone;p 1 0 0;p 1 1 0;d 1 0;P 1 0;F 0 4 -1;e 1 0;g 0;e 0 1"),
    ("relay-echo", "rollbacks 2 4 alone;a 1;b 1;p 1 3 0;a 1;P 1 0;q 1 2;p 1 1 0"),
    ("forgets-seen", "anything 4 3 alone;C 2;p 1 0 0;C 1;R 2 -1;e 2 0;R 2 0"),
    ("digests", "rollbacks 3 2 alone;u 1;N 0;u 4;p 4 0 0;p 5 0 0"),
    ("keeps-last", "anything 5 2 alone;C 1;G -1;x 1"),
    // Copies 3 and 4 are selective and cover a write of 0, which 1 and 2 read too late to cover the first
    // entries of 3 and 4; in the next ones each has seen the other's write. Then 0 is lost.
    (
      "owes",
      "selective 3 1 ending;j 0 1;j 0 1;p 0 0 0;o 0 3;c 0 3;o 0 4;c 0 4;P 0 0;p 3 0 0;p 4 0 0;P 3 0;P 4 0;"
        + "F 1 1 -1;F 1 2 -1;F 2 1 -1;F 2 2 -1;o 3 0;c 3 0;o 4 0;c 4 0;o 0 3;c 0 3;o 0 4;c 0 4;l 0"
    ),
  ]

  @Test("each rule is needed by a recorded history", arguments: histories.map(\.rule))
  func isNeeded(name: String) throws {
    let rule = try #require(Model.Rules.relaySwitches.first { $0.name == name })
    let kept = try #require(Self.histories.first { $0.rule == name })
    let history = try #require(Model.History(kept.history))
    var rules = Model.Rules()
    #expect(history.play(rules) == nil, "with all rules nothing is wrong")
    rules[keyPath: rule.path] = false
    #expect(history.play(rules) != nil, "without \(name) nothing goes wrong")
  }

  @Test("a history is kept for every rule but twins")
  func all() {
    let kept = Set(Self.histories.map(\.rule))
    #expect(Set(Model.Rules.relaySwitches.map(\.name)).subtracting(kept) == ["twins"])
  }

  /// No history breaks without this rule: what two lives of one actor write under one dot is found by the
  /// digests (L10), and a life that knows less by its echo (L9). The rule finds both before that happens.
  @Test("without the rule on twins, two lives of one actor are found only by what they have broken")
  func twins() throws {
    let history = try #require(
      Model.History("rollbacks 2 1 alone;p 0 0 0;u 0;P 2 0;F 0 0 -1;p 0 0 0;p 2 0 0"))
    for isOn in [true, false] {
      var rules = Model.Rules()
      rules.relay.twins = isOn
      var world = history.world(rules)
      for operation in history.operations {
        try world.step(operation)
        try world.checkStep()
      }
      try world.heal()
      #expect((world.count(of: .relayAlarm) == 0) == isOn)
      #expect((world.count(of: .repairedKey) == 0) == isOn)
      #expect((world.count(of: .reborn) > 0) == isOn)
      #expect((world.count(of: .rebornAfterFork) > 0) == !isOn)
    }
  }

  @Test("random histories fail when a rule of the relay is switched off (RELAY_RULES)")
  func isFound() {
    // Only the rules that are detected fastest; `make relays` covers all.
    let most = UInt64(Setting.number("RELAY_RULES", 25))
    let fastest = [
      "whole-entry", "marks-first", "creates-once", "awaits-deps", "relay-floor", "relay-full-state", "lifts",
      "detects-loss", "keeps-last",
    ]
    for rule in Model.Rules.relaySwitches where most > 1000 || fastest.contains(rule.name) {
      var rules = Model.Rules()
      rules[keyPath: rule.path] = false
      let found = (0..<most).first { seed in
        Model.History.random(seed: seed, rule.mixture, rules: rules).violation != nil
      }
      if most > 1000 {
        print("\(rule.name): \(found.map { "missed at seed \($0)" } ?? "not missed in \(most) seeds")")
      }
      #expect(found != nil || !rule.isFoundByChance, "\(rule.name): \(most) seeds")
    }
  }
}

import SyncTestSupport
import Testing

/// The store behaves like a durable dictionary: random scripts run on both, with crashes in between.
@Suite("A store compared with a dictionary")
struct StoreScriptTests {
  /// `make scripts` sets these; the default is a small sample.
  private static let seeds = UInt64(Setting.number("SCRIPT_SEEDS", 10))
  private static let first = UInt64(Setting.number("SCRIPT_FIRST", 0))

  @Test(
    "shows the same values, lists and snapshots after each step, with crashes (F3, F13, F15, F18, F19, F24)",
    arguments: StoreSetting.allCases)
  func script(setting: StoreSetting) {
    for seed in Self.first..<Self.first + Self.seeds {
      var random = SplitMix64(seed: seed)
      let steps = StoreStep.script(setting, count: 60, &random)
      guard let found = Self.failure(steps, setting, seed) else { continue }
      let short = Shrinking.shrink(steps, simpler: \.simpler) { candidate in
        Self.failure(candidate, setting, seed) == nil ? nil : candidate.count
      }
      Issue.record(
        "\(setting), seed \(seed): \(found)\n\(short.map { $0.description }.joined(separator: "\n"))\n\(Self.failure(short, setting, seed) ?? "")"
      )
    }
  }

  private static func failure(_ steps: [StoreStep], _ setting: StoreSetting, _ seed: UInt64) -> String? {
    do {
      try StoreScriptRun(setting, seed: seed).play(steps)
      return nil
    } catch {
      return "\(error)"
    }
  }
}

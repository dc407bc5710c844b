import SyncTestSupport
import Testing

/// The executable model: its rules hold, each is needed, and it is the model of the design
/// (`GoldenModelTests`).
@Suite("The replication model")
struct ModelTests {
  /// `make model` sets these; the default is a small sample.
  private static let seeds = Setting.number("MODEL_SEEDS", 50)
  private static let first = UInt64(Setting.number("MODEL_FIRST", 0))

  @Test(
    "keeps its invariants in random histories (F55, F56, F59, F63, F65)",
    arguments: Model.History.Kind.allCases)
  func holds(kind: Model.History.Kind) {
    for seed in Self.first..<Self.first + UInt64(Self.seeds) {
      let outcome = Model.History.random(
        seed: seed, Model.History.Mixture(kind: kind, damages: kind == .anything && seed % 4 == 3))
      if let violation = outcome.violation {
        let short = outcome.history.shrunk(violation.name, Model.Rules())
        Issue.record("\(kind), seed \(seed): \(violation)\n\(short)")
      }
    }
  }

  @Test("keeps its invariants where local writes are never parked, as in the store (F49)")
  func ownWrites() {
    var rules = Model.Rules()
    rules.parksOwn = false
    for seed in Self.first..<Self.first + UInt64(Self.seeds) {
      let outcome = Model.History.random(seed: seed, rules: rules)
      if let violation = outcome.violation {
        Issue.record("seed \(seed): \(violation)\n\(outcome.history.shrunk(violation.name, rules))")
      }
    }
  }
}

import SyncTestSupport
import Testing

/// The model with a relay: its invariants hold, whatever breaks; a newcomer reads everything without help.
@Suite("The replication model with a relay")
struct RelayModelTests {
  private typealias Mixture = Model.History.Mixture

  /// Which copies meet, and what breaks.
  private static let mixtures = [
    Mixture(use: .mixed), Mixture(use: .ending), Mixture(use: .alone),
    Mixture(use: .mixed, losesEntries: true), Mixture(damages: true, use: .alone, losesEntries: true),
    Mixture(damages: true, use: .alone), Mixture(kind: .clocks, use: .alone),
    Mixture(kind: .selective, use: .mixed), Mixture(kind: .selective, use: .ending),
    Mixture(kind: .selective, use: .alone), Mixture(kind: .rollbacks, use: .mixed),
    Mixture(kind: .rollbacks, use: .ending), Mixture(kind: .rollbacks, use: .alone),
  ]

  @Test("keeps its invariants in random histories (make relays)", arguments: mixtures)
  private func holds(mixture: Mixture) {
    for seed in Setting.seeds("RELAY", first: 0, count: 6) {
      let outcome = Model.History.random(seed: UInt64(seed), mixture)
      guard let violation = outcome.violation else { continue }
      let short = outcome.history.shrunk(violation.name, Model.Rules())
      Issue.record("\(mixture), seed \(seed): \(violation)\n\(short)")
    }
  }

  @Test("random histories contain every event of a relay")
  func events() {
    var missing: Set<Model.Event> = [
      .published, .ownEntryFound, .checkpoint, .entryRead, .checkpointAsIncrement, .checkpointAsFullState,
      .startedOver, .collected, .relayLoss, .newcomer, .relayComparison,
    ]
    for seed in 0..<30 as Range<UInt64> where !missing.isEmpty {
      let mixture = Mixture(damages: true, use: .alone, losesEntries: true)
      let world = Model.History.random(seed: seed, mixture).world
      missing = missing.filter { world.count(of: $0) == 0 }
    }
    #expect(missing.isEmpty)
  }

  @Test("a power loss takes back what a copy knew of the relay")
  func powerLoss() throws {
    var world = Model.World(copies: 2, keys: 1)
    world.relay.use = .alone
    try world.step(.put(0, key: 0, life: 0))
    try world.step(.relay(.publish(0, .never)))
    try world.step(.relay(.poll(1)))
    #expect(world.copies[1].live.relay.progress(1) == 1)
    try world.step(.crash(1))
    #expect(world.copies[1].live.relay.progress(1) == 0)
    #expect(world.copies[1].live.held(0) == nil)
    // Its publisher knows only that the entry may be there, and finds that it is.
    try world.step(.crash(0))
    #expect(world.copies[0].live.relay.pending == 1)
    try world.step(.relay(.publish(0, .never)))
    #expect(world.count(of: .ownEntryFound) == 1)
    #expect(world.relay.length(1) == 2)
  }
}

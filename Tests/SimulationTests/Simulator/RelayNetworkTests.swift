import Foundation
import SyncStore
import SyncTestSupport
import Testing

/// Networks whose machines use a relay, most of them nothing else, on virtual time.
@Suite("A network of machines with a relay")
struct RelayNetworkTests {
  private static let seeds = UInt64(Setting.number("RELAY_NETWORKS", 4))
  private static let first = UInt64(Setting.number("RELAY_NETWORK_FIRST", 0))

  @Test("keeps the invariants in every history, whatever fails in the relay, and converges")
  func seeds() async {
    await #expect(processExitsWith: .success) {
      Patience.limitProcess(minutes: 60)
      var counts: [String: Int] = [:]
      let seeds =
        Setting.given("RELAY_NETWORK").map { [UInt64($0)] } ?? Array(Self.first..<Self.first + Self.seeds)
      for seed in seeds {
        do {
          let simulation = try Simulation(
            Simulation.Options(
              seed: seed, hours: 2, rollsBack: seed % 8 == 7, hasRights: false, hasRelay: true))
          defer { counts.merge(simulation.relay?.counts ?? [:], uniquingKeysWith: +) }
          try simulation.run()
        } catch {
          Issue.record("\(error)\nrun again: make relay-networks NETWORK=\(seed)")
        }
      }
      guard seeds.count >= 50 else { return }
      for what in ["read", "published", "checkpoints", "blobs", "deaths", "put back", "remarks", "set aside"]
      {
        #expect(counts[what] ?? 0 > 0, "in \(seeds.count) histories there are no \(what): \(counts)")
      }
      print(counts.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", "))
    }
  }
}

import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// The cost of a relay for a fleet must follow from what changes, not from what has ever changed
/// (`make relay-fleet` measures more members and days).
@Suite("A fleet of members with one relay")
struct RelayFleetTests {
  private static let members = Setting.number("RELAY_FLEET_MEMBERS", 8)
  private static let days = Setting.number("RELAY_FLEET_DAYS", 6)
  private static let isMeasurement = Setting.given("RELAY_FLEET_MEMBERS") != nil

  @Test("requests do not grow, one member writes a checkpoint that is due, a newcomer reads one")
  func fleet() async throws {
    let run = try RelayFleetRun(members: Self.members)
    for number in 1...Self.days {
      try await run.runDay()
      if Self.isMeasurement { print("day \(number): \(text(of: run.days[number - 1]))") }
    }
    let newcomer = try await run.join()
    if Self.isMeasurement { print("newcomer: \(text(newcomer, of: 1))") }
    check(run.days, newcomer)
  }

  private func check(_ days: [RelayFleetRun.Day], _ newcomer: RelayFleetRun.Cost) {
    guard days.count > 2, let last = days.last else { return }
    let earlier = days[2]
    #expect(last.cost.total * 4 <= earlier.cost.total * 5, "requests grow: \(earlier.cost) \(last.cost)")
    // Each member publishes a few times a day, and one of them writes the checkpoint when it is due.
    let published = days.count * Self.members * RelayFleetRun.turns
    let due = published / Int(RelayLimits.checkpointEntries)
    let written = days.reduce(0) { $0 + $1.checkpoints }
    #expect(written <= due + 1, "\(written) checkpoints after \(published) publications")
    // Each change of a head is read whole: of each member at most as many as it publishes, and its purge.
    let changes = RelayFleetRun.turns + 1
    let bound = changes * Self.members * Self.members * (RelayLimits.inlineBytes * 3 / 2)
    #expect(last.cost.receivedBytes <= bound, "\(last.cost)")
    #expect(newcomer.reads["h"] == Self.members)
    #expect(newcomer.reads["c"] ?? 0 <= 2, "a newcomer reads more than one checkpoint: \(newcomer)")
    let entries = Int(RelayLimits.checkpointEntries) + changes * Self.members
    #expect(newcomer.reads["e"] ?? 0 <= entries, "\(newcomer)")
  }

  /// One member's share of a day.
  private func text(of day: RelayFleetRun.Day) -> String {
    "\(text(day.cost, of: Self.members)); all: \(day.records) records, \(day.checkpoints) checkpoints; there are \(day.objects) objects, \(day.storedBytes) bytes"
  }

  private func text(_ cost: RelayFleetRun.Cost, of members: Int) -> String {
    func share(_ count: Int) -> String { "\((count * 10 / members).description)".dotted }
    let requests = ObjectOperation.allCases.map { "\($0.rawValue) \(share(cost.requests[$0] ?? 0))" }
    let reads = cost.reads.sorted { $0.key < $1.key }.map { "\($0.key) \(share($0.value))" }
    return
      "\(requests.joined(separator: ", ")) (\(reads.joined(separator: ", "))), sent \(cost.sentBytes / members), received \(cost.receivedBytes / members) bytes"
  }
}

extension String {
  /// Tenths as a decimal number.
  fileprivate var dotted: String { "\(dropLast().isEmpty ? "0" : dropLast()).\(suffix(1))" }
}

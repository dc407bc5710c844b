import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// What is deleted from a relay, and what never is (rule L11).
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayCollectionTests {
  private static let day: UInt64 = 86_400_000

  private func place(_ number: UInt64) throws -> RelayProgress.Place {
    RelayProgress.Place(
      number: number, mark: try #require(RoundMark(bytes: Array(repeating: UInt8(number), count: 16))))
  }

  @Test func `an object is deleted a day after it was named, unless it was written since`() {
    let entry = { (name: String, time: UInt64?) in
      ObjectEntry(name: name, size: 1, version: nil, modified: time)
    }
    let now = 100 * Self.day
    let first = RelayDooms(
      earlier: [], unreferenced: ["a", "b", "c", "d"],
      written: [entry("a", 1), entry("b", 1), entry("c", nil), entry("d", now - 1)], at: now)
    #expect(first.due.isEmpty && first.left.map(\.name) == ["a", "b", "c", "d"])
    let early = RelayDooms(
      earlier: first.left, unreferenced: ["a"], written: [entry("a", 1)], at: now + Self.day - 1)
    #expect(early.due.isEmpty && early.left == [RelayDoom(name: "a", time: now)])
    let later = RelayDooms(
      earlier: first.left, unreferenced: ["a", "b", "c", "d"],
      written: [entry("a", 1), entry("b", now + 1), entry("c", nil), entry("d", now - 1)], at: now + Self.day)
    #expect(later.due == ["a", "d"])
    #expect(later.left.map(\.name) == ["b", "c"] && later.left.allSatisfy { $0.time == now + Self.day })
    let again = RelayDooms(
      earlier: first.left, unreferenced: [], written: [entry("a", 1)], at: now + Self.day)
    #expect(again.due.isEmpty && again.left.isEmpty, "what is referred to again stays")
    let back = RelayDooms(earlier: first.left, unreferenced: ["a"], written: [entry("a", 1)], at: now - 1)
    #expect(back.due.isEmpty, "a clock that went back deletes nothing")
  }

  @Test func `nothing is deleted that a member has yet to read`() async throws {
    let fleet = try await RelayFleet()
    try Membership(fleet.first.store).add(
      RelayDescription(name: "stick", location: "dir:" + fleet.place.path))
    for number in 0..<15 {
      for key in 0..<8 { try fleet.first.put("key/\(key)", String(repeating: "\(number % 10)", count: 900)) }
      _ = try await fleet.client(fleet.first).push()
    }
    let before = try await fleet.objects("e/")
    #expect(!before.isEmpty)
    let kept = try await fleet.client(fleet.first).collect(isDryRun: false)
    #expect(kept.collectedObjects == 0)
    #expect(try await fleet.objects("e/") == before)
    _ = try await fleet.client(fleet.second).sync()
    let dry = try await fleet.client(fleet.first).collect(isDryRun: true)
    #expect(try await fleet.objects("e/") == before)
    let collected = try await fleet.client(fleet.first).collect(isDryRun: false)
    #expect(collected.collectedObjects == dry.collectedObjects)
    _ = try await fleet.carry(fleet.first, fleet.second)
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test func `objects that nothing refers to are named first, and a newcomer reads all that is left`()
    async throws
  {
    let fleet = try await RelayFleet()
    try fleet.first.store.put("large", [UInt8](repeating: 7, count: 50_000))
    _ = try await fleet.carry(fleet.first, fleet.second)
    let blob = try #require(try await fleet.objects("b/").first)
    try fleet.first.store.put("large", [UInt8](repeating: 8, count: 50_000))
    _ = try await fleet.client(fleet.first).sync()
    let named = try await fleet.client(fleet.first).collect(isDryRun: false)
    #expect(named.doomedObjects == 1 && named.collectedObjects == 0)
    #expect(try await fleet.objects("b/").contains(blob))
    // A member that needs it writes it again, and it stays.
    try fleet.second.store.put("copy", [UInt8](repeating: 7, count: 50_000))
    let again = try await fleet.client(fleet.second).sync()
    #expect(again.sentBlobs == 1)
    #expect(try await fleet.client(fleet.first).collect(isDryRun: false).doomedObjects == 0)
  }
}

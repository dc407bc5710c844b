import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// A selective copy in a network; `ScopeSimulationTests` checks its rules under every fault.
@Suite("Copies with a key scope, over the network")
struct ScopeTests {
  /// A copy of all keys that listens, and one of those that begin with "a/".
  private func fleet() async throws -> (all: TestCopy, some: TestCopy) {
    let all = try TestCopy.first()
    _ = try await all.listen()
    for number in 0..<300 {
      try all.put("a/\(number)", "value of a \(number)")
      try all.put("b/\(number)", "value of b \(number)")
    }
    try all.store.put(Key("b/large"), noise(5000, seed: 1))
    let token = try Node.invite(to: all.store)
    let some = try await TestCopy.joined(token, "some", scope: KeyScope(prefixes: ["a/"]))
    return (all, some)
  }

  @Test("are sent the keys of their scope only, and send what was written there")
  func theirs() async throws {
    let (all, some) = try await fleet()
    let report = try await some.node.synchronize(with: "first")
    #expect(report.receivedRecords == 300 && report.receivedBlobs == 0)
    #expect(try some.get("a/7") == "value of a 7" && some.get("b/7") == nil)
    try some.put("a/7", "changed")
    let error = #expect(throws: StoreError.self) { try some.put("b/7", "changed") }
    #expect(error?.code == .outOfBounds && error?.message.contains("a/") == true)
    let pushed = try await some.node.synchronize(with: "first", direction: .push)
    #expect(pushed.sentRecords == 1)
    #expect(try all.get("a/7") == "changed")
    // Without changes it costs as little as between any two copies.
    let again = try await some.node.synchronize(with: "first")
    #expect(again.sentRecords == 0 && again.receivedRecords == 0 && again.roundTrips <= 2)
  }

  @Test("expand their scope, up to all keys, without receiving again what they have")
  func widen() async throws {
    let (all, some) = try await fleet()
    _ = try await some.node.synchronize(with: "first")
    let scope = try KeyScope(prefixes: ["a/", "b/"])
    let report = try await some.node.widen(to: scope, from: "first")
    #expect(report.receivedRecords == 301 && report.receivedBlobs == 1)
    // It covers writes that it does not hold: no copy may evict a large value on its word.
    #expect(try some.store.holdings(of: []) == nil && all.store.holdings(of: []) != nil)
    #expect(try some.store.scope == scope && !some.store.isWidening)
    #expect(try some.store.get(Key("b/large"))?.bytes == noise(5000, seed: 1))
    try some.put("b/7", "written at last")
    try all.put("c", "for the last one")
    let rest = try await some.node.widen(to: nil, from: "first")
    #expect(try rest.receivedRecords == 1 && some.store.scope == nil)
    _ = try await some.node.synchronize(with: "first")
    #expect(try all.digest() == some.digest() && all.get("b/7") == "written at last")
  }

  @Test("expand their scope when the other side dials, also when there is nothing else to do")
  func widenedByTheOther() async throws {
    let (all, some) = try await fleet()
    _ = try await some.node.synchronize(with: "first")
    _ = try await some.node.synchronize(with: "first")
    let address = try await some.listen()
    try some.store.widen(to: KeyScope(prefixes: ["a/", "b/"]))
    // A member that does not send cannot provide them.
    _ = try await all.node.synchronize(with: address.description, direction: .pull)
    #expect(try some.store.isWidening && some.get("b/7") == nil)
    let report = try await all.node.synchronize(with: address.description)
    #expect(report.sentRecords == 301)
    #expect(try !some.store.isWidening && some.get("b/7") == "value of b 7")
    #expect(try some.store.get(Key("b/large"))?.bytes == noise(5000, seed: 1))
    try some.store.widen(to: nil)
    try all.put("c", "for the last one")
    _ = try await all.node.synchronize(with: address.description, direction: .push)
    #expect(try some.store.scope == nil && some.get("c") == "for the last one")
    _ = try await all.node.synchronize(with: address.description)
    #expect(try all.digest() == some.digest())
    await some.node.stop()
  }

  @Test("follow live the keys of their scope, and continue with an expanded scope")
  func live() async throws {
    let (all, some) = try await fleet()
    some.node.keepInStep()
    for await state in some.node.states(of: "first") where state.phase == .live { break }
    try all.put("b/new", "not for you")
    try all.put("a/new", "for you")
    while try some.get("a/new") == nil { try await Task.sleep(for: .milliseconds(5)) }
    #expect(try some.get("b/new") == nil)
    _ = try await some.node.widen(to: nil, from: "first")
    try all.put("b/newer", "for you, too")
    while try some.get("b/newer") == nil { try await Task.sleep(for: .milliseconds(5)) }
    #expect(try some.get("b/new") == "not for you")
    await some.node.stop()
  }

  @Test(
    "go live while they wait for keys no connected member can give, and ask again later, whichever side dials",
    .timeLimit(.minutes(Patience.minutes(1))), arguments: [true, false])
  func waiting(dials: Bool) async throws {
    let (all, some) = try await fleet()
    _ = try await some.node.synchronize(with: "first")
    // A write that the full copy lacks, and the other one has from its author.
    let author = try await TestCopy.joined(try Node.invite(to: all.store), "author")
    _ = try await author.node.synchronize(with: "first")
    _ = try await some.node.synchronize(with: "first")
    try author.put("a/far", "from afar")
    try author.put("b/far", "from afar")
    _ = try await some.node.synchronize(with: "\(try await author.listen())")
    #expect(try some.get("a/far") == "from afar" && all.get("a/far") == nil)
    try some.store.widen(to: nil)
    if dials {
      some.node.keepInStep(KeepPolicy(retry: 1...50))
    } else {
      let address = try await some.listen()
      try Membership(all.store).add(
        Peer(name: "some", addresses: ["\(address)"], device: some.node.device))
      all.node.keepInStep(KeepPolicy(retry: 1...50))
    }
    while some.node.state.connected.isEmpty { try await Task.sleep(for: .milliseconds(5)) }
    for number in 0..<3 {
      try some.put("a/here", "\(number)")
      try all.put("a/there", "\(number)")
      try all.put("b/there", "\(number)")
      while try some.get("a/there") != "\(number)" || all.get("a/here") != "\(number)" {
        try await Task.sleep(for: .milliseconds(5))
      }
    }
    #expect(try some.store.isWidening && some.get("b/there") != "2")
    _ = try await author.node.synchronize(with: "first")
    await author.node.stop()
    let core = some.node.core
    while try some.store.isWidening {
      try await some.node.onLoop { () throws(ReplicationError) in
        for driver in core.value.drivers where driver.isLive { driver.expire(.scopeExpansion) }
      }
      try await Task.sleep(for: .milliseconds(20))
    }
    #expect(try some.get("b/far") == "from afar" && some.get("b/there") == "2")
    while try some.digest() != all.digest() { try await Task.sleep(for: .milliseconds(5)) }
    await some.node.stop()
    await all.node.stop()
  }

  @Test("do not sync with each other, and do not give up what they hold")
  func refused() async throws {
    let (all, some) = try await fleet()
    let token = try Node.invite(to: all.store)
    let other = try await TestCopy.joined(token, "other", scope: KeyScope(prefixes: ["b/"]))
    _ = try await other.node.synchronize(with: "first")
    _ = try await some.node.synchronize(with: "first")
    let address = try await other.listen()
    let error = await #expect(throws: ReplicationError.self) {
      _ = try await some.node.synchronize(with: address.description)
    }
    #expect(error?.code == .unavailable && error?.message.contains("some of the keys") == true)
    await #expect(throws: ReplicationError.self) {
      _ = try await some.node.widen(to: try KeyScope(prefixes: ["b/"]), from: "first")
    }
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

/// A write names the replaced records that its author does not cover: its open dots (rule R6).
@Suite("A write over a record that its author does not cover")
struct OpenDotTests {
  private let hosts = (1...4 as ClosedRange<UInt64>).map { SimulatedHost(seed: $0, machine: "machine \($0)") }

  private func record(_ store: Store) throws -> Record {
    try #require(try store.currentRecord(Array("k".utf8)))
  }

  /// The first copy's write of "k", and a second copy that received it in a broken round and has overwritten
  /// it.
  private func half() throws -> (first: Store, second: Store, dot: Dot) {
    let first = try Store.create(on: hosts[0])
    let second = try Store.create(on: hosts[1], id: first.id)
    try first.put("k", "first")
    for number in 0..<20 { try first.put(Key("\(number)"), [UInt8](repeating: 1, count: 1000)) }
    try second.receive(from: first, batches: 1, maximumBytes: 2000)
    #expect(try second.text("k") == "first" && second.versionVector().isEmpty)
    let dot = try record(first).dot
    try second.put("k", "second")
    return (first, second, dot)
  }

  @Test func `names its dot as open, also to a third copy, whose own write passes the open dot on`() throws {
    let (first, second, dot) = try half()
    #expect(try record(second).open == [dot])
    let third = try Store.create(on: hosts[2], id: first.id)
    try third.receive(from: second)
    #expect(try record(third).open == [dot])
    try third.put("k", "third")
    #expect(try record(third).open == [dot])
    // An author that covers it by now no longer names it.
    try third.receive(from: first)
    try third.put("k", "third again")
    #expect(try record(third).open.isEmpty)
  }

  @Test func `that loses leaves its open dots to the winner, which is reissued with a higher stamp`()
    throws
  {
    let (first, second, dot) = try half()
    let third = try Store.create(on: hosts[2], id: first.id)
    try third.receive(from: second)
    let ahead = try Store.create(on: hosts[3], id: first.id)
    hosts[3].time += 30_000
    try ahead.put("k", "ahead")
    try third.receive(from: ahead)
    let issued = try record(third)
    #expect(try issued.open == [record(ahead).dot, dot])
    #expect(try issued.dot.actor == third.actor)
    #expect(try issued.stamp > record(ahead).stamp)
    let all = [first, second, third, ahead]
    for _ in 0..<2 {
      for one in all { for other in all where other !== one { try one.receive(from: other) } }
    }
    for store in all {
      #expect(try store.text("k") == "ahead")
      #expect(try store.digest() == first.digest())
    }
  }

  @Test func `that loses to two records applied together leaves its open dots to the greater one (R8, F50)`()
    throws
  {
    let (first, second, dot) = try half()
    let ahead = try Store.create(on: hosts[3], id: first.id)
    hosts[3].time += 600_000
    for value in ["ahead", "and replaced"] {
      try ahead.put("k", value)
      try second.receive(from: ahead)
    }
    #expect(try second.text("k") == "second")
    #expect(try second.status().parked == 1)
    for host in hosts { host.time += 900_000 }
    try second.put("poke", "x")
    #expect(try second.text("k") == "and replaced" && second.status().parked == 0)
    let issued = try record(second)
    #expect(
      try issued.open == [dot] && issued.dot.actor == second.actor && issued.stamp > record(ahead).stamp)
    #expect(try second.conflicts().map(\.value) == [Array("second".utf8)])
    let all = [first, second, ahead]
    for _ in 0..<2 {
      for one in all { for other in all where other !== one { try one.receive(from: other) } }
    }
    for store in all {
      #expect(try store.text("k") == "and replaced")
      #expect(try store.digest() == first.digest())
    }
  }

  @Test func `is stamped above all received records, of whatever key`() throws {
    let here = try Store.create(on: hosts[0])
    let ahead = try Store.create(on: hosts[1], id: here.id)
    hosts[1].time += 30_000
    try ahead.put("other", "x")
    try here.receive(from: ahead)
    try here.put("k", "here")
    #expect(try record(here).stamp > ahead.entry("other")?.stamp ?? .maximum)
  }

  @Test func `A covered record is not applied again, though its key holds no record any more`() throws {
    let store = try Store.create(on: hosts[0])
    try store.put("k", "x")
    let old = try record(store)
    #expect(Resolution.receive(old, held: nil, limit: .maximum, covers: { $0 == old.dot }) == .ignore)
    #expect(Resolution.receive(old, held: old, limit: .maximum, covers: { _ in false }) == .ignore)
    #expect(
      Resolution.receive(old, held: nil, limit: .maximum, covers: { _ in false }) == .win(conflict: false))
  }
}

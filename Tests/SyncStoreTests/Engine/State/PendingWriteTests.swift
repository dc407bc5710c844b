import SyncTestSupport
import Testing

@testable import SyncStore

/// The answers of a transaction about writes it has not looked up yet, and the remains of one whose commit
/// fails.
@Suite("Pending writes of a batch")
struct PendingWriteTests {
  private let host = SimulatedHost()

  @Test(
    "have versions at constant cost each, and keep them when committed"
  )
  func versions() throws {
    let store = try Store.create(on: host)
    try store.put("k1", "held before")
    var told: [Key: (version: Dot?, entry: Entry?)] = [:]
    try store.transaction { transaction in
      for number in 0..<500 {
        let key = try Key("k\(number % 300)")
        try transaction.put(key, [UInt8(truncatingIfNeeded: number)], type: .bytes)
        let versioned = try transaction.versioned(key)
        #expect(versioned?.value.bytes == [UInt8(truncatingIfNeeded: number)])
        told[key] = (versioned?.version, try transaction.entry(key))
      }
      try transaction.delete("k7")
      let (versioned, entry) = (try transaction.versioned("k7"), try transaction.entry("k7"))
      #expect(versioned == nil && entry == nil)
      told["k7"] = nil
      let settled = transaction.builder.issuedPendingCount
      #expect(settled == 0, "asking for a version issues nothing")
    }
    for (key, told) in told {
      #expect(try store.versioned(key)?.version == told.version, "\(key)")
      #expect(try store.entry(key) == told.entry, "\(key)")
    }
    #expect(try store.get("k7") == nil)
  }

  private func pendingNumber(of key: String, in builder: TransactionBuilder) -> Int? {
    guard case .pending(_, let number) = builder.earlierWrite(of: Array(key.utf8)) else { return nil }
    return number
  }

  @Test("are issued atomically: where the clock ends midway, the append is unchanged")
  func allOrNothing() throws {
    let actor = ActorID(high: 1, low: 2)
    var state = ReplicaState()
    // Two more stamps, then none.
    state.author = Author(
      actor: actor, sequence: 5, clock: HybridClock(last: Stamp(rawValue: Stamp.maximum.rawValue - 3)))
    var builder = TransactionBuilder(
      state: state, wall: 1_700_000_000_000, position: 9, limit: 1 << 20, hashSeed: 3)
    for (key, value) in [("a", 1), ("b", 2), ("a", 3)] as [(String, UInt8)] {
      try builder.enqueue(key: Array(key.utf8), value: [value], type: .bytes)
    }
    let bytes = builder.bytes
    for _ in 0..<2 {
      #expect(code { try builder.issuePending { _ in nil } } == .clock)
      #expect(builder.entries.isEmpty && builder.pending.count == 3)
      #expect(builder.bytes == bytes && builder.state.sequence == 5)
      #expect(pendingNumber(of: "a", in: builder) == 2)
      #expect(pendingNumber(of: "b", in: builder) == 1)
    }
    #expect(builder.version(ofPending: 1)?.dot == Dot(actor: actor, sequence: 7))
    #expect(builder.version(ofPending: 2) == nil)
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

/// Damage is resolved once its records came again from a peer.
@Suite("Damage repaired by a peer")
struct ResolvedDamageTests {
  private static let configuration = Configuration(durability: .relaxed, segmentBytes: 64 << 10)

  @Test("is not counted by status, and is removed by the next compaction", arguments: [false, true])
  func counted(inTransaction: Bool) throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    var store = try Store.create(on: host, configuration: Self.configuration)
    let other = try Store.create(on: SimulatedHost(seed: 4, machine: "other"), id: store.id)
    for number in 0..<200 {
      if inTransaction {
        try store.transaction { transaction in
          try transaction.put(Key("key \(number)"), Array("value of \(number)".utf8))
          try transaction.put(Key("filler"), [UInt8](repeating: 1, count: 900))
        }
      } else {
        try store.put(Key("key \(number)"), Array("value of \(number)".utf8))
        try store.put("filler", [UInt8](repeating: 1, count: 900))
      }
    }
    try store.put("end", "x", durability: .full)
    try other.receive(from: store)
    try store.close()
    host.killProcesses()
    let path = "/store/journal/0000000000000001.segment"
    let bytes = try host.storage.open(path, .readOnly).read(64 << 10, at: 0)
    let place = try #require(bytes.firstRange(of: Array("value of 20".utf8))?.lowerBound)
    try host.storage.flipBit(of: path, at: place, bit: 2)
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    store = try Store.open(on: host, configuration: Self.configuration)
    #expect(try store.status().damagedPlaces == 1 && !store.verify().isClean)
    let before = try store.status().journalBytes
    try store.compact()
    #expect(try store.status().damagedPlaces == 1, "what nobody has made good stays as it is")
    for _ in 0..<2 { try store.synchronize(with: other) }
    #expect(try store.status().damagedPlaces == 0 && store.verify().isClean)
    #expect(try store.text("key 20") == "value of 20")
    #expect(store.core.engine.withLock { $0.damage.gaps.count } == 1)
    try store.compact()
    #expect(store.core.engine.withLock { $0.damage.gaps.isEmpty }, "the segment was replaced")
    #expect(try store.status().journalBytes < before)
    for number in 0..<200 { #expect(try store.text(Key("key \(number)")) == "value of \(number)") }
    #expect(try store.digest() == other.digest() && store.verify().isClean)
    host.killProcesses()
    store = try Store.open(on: host, configuration: Self.configuration)
    #expect(try store.status().damagedPlaces == 0 && store.verify().isClean)
    for number in 0..<200 { #expect(try store.text(Key("key \(number)")) == "value of \(number)") }
  }

  @Test("is reported by the name of its file, also of a compacted segment")
  func named() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    var store = try Store.create(on: host, configuration: Self.configuration)
    for round in 0..<2 {
      for number in 0..<200 {
        let value = Array("value \(round) of \(number)".utf8) + [UInt8](repeating: 1, count: 300)
        try store.put(Key("key \(number)"), value)
      }
    }
    #expect(try store.compact() > 0)
    try store.put("end", "x", durability: .full)
    try store.close()
    host.killProcesses()
    let name = try #require(try host.storage.list("/store/journal").first { $0.contains("-") })
    let path = "/store/journal/" + name
    let bytes = try host.storage.open(path, .readOnly).read(64 << 10, at: 0)
    let place = try #require(bytes.firstRange(of: Array("value 1 of".utf8))?.lowerBound)
    try host.storage.flipBit(of: path, at: place, bit: 2)
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    store = try Store.open(on: host, configuration: Self.configuration)
    let damage = try store.verify().damage
    #expect(!damage.isEmpty && damage.allSatisfy { $0.hasPrefix("\(name), bytes ") }, "\(damage)")
  }
}

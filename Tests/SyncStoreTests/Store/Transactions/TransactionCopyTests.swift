import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Copies in a transaction")
struct TransactionCopyTests {
  let host = SimulatedHost(encrypted: false)

  @Test("keep type and deadline, and see the transaction's own writes")
  func details() throws {
    let store = try Store.create(on: host)
    let deadline = host.time + 1000
    try store.put("a", [1, 2], type: .cbor, expiration: .at(deadline))
    try store.put("b", "other")
    try store.transaction { transaction in
      #expect(try transaction.copy("a", to: "b"))
      #expect(try transaction.copy("b", to: "c"))
      #expect(try transaction.delete("a"))
      #expect(try !transaction.copy("a", to: "d"))
      try transaction.put("e", "new")
      #expect(try transaction.copy("e", to: "f"))
    }
    for key in ["b", "c"] as [Key] {
      #expect(try store.get(key) == Value(bytes: [1, 2], type: .cbor, deadline: deadline))
    }
    #expect(try !store.contains("a") && !store.contains("d") && store.text("f") == "new")
    host.time = deadline
    let copied = try store.transaction { try $0.copy("b", to: "g") }
    #expect(!copied)
  }

  @Test("refer to a large value without a copy of it, which outlives the first key")
  func blobs() throws {
    let store = try Store.create(on: host)
    let large = [UInt8](repeating: 7, count: 100_000)
    try store.put("a", large)
    let bytes = try store.blobs.totalBytes()
    try store.transaction { transaction in
      #expect(try transaction.copy("a", to: "b"))
      try transaction.delete("a")
    }
    #expect(try store.blobs.totalBytes() == bytes)
    _ = try store.trim(graceSeconds: 0)
    #expect(try store.get("b")?.bytes == large)
  }

  @Test("of a large value that is not here are refused: that write would beat one that a member can supply")
  func absentBlobs() throws {
    let peer = try Store.create(on: SimulatedHost(seed: 9, machine: "peer", encrypted: false))
    let store = try Store.create(on: host, id: peer.id)
    try peer.put("a", [UInt8](repeating: 5, count: 100_000))
    try store.receive(from: peer)
    #expect(
      #expect(throws: StoreError.self) { try store.transaction { try $0.copy("a", to: "b") } }?.code
        == .blobUnavailable)
    #expect(try !store.contains("b"))
  }

  @Test("survive a loss of power together with the delete that makes them a rename")
  func renames() throws {
    let store = try Store.create(on: host)
    try store.put("a", "value")
    try store.transaction { transaction in
      if try transaction.copy("a", to: "b") { try transaction.delete("a") }
    }
    host.losePower(seed: 1)
    let after = try Store.open(on: host)
    #expect(try after.text("b") == "value" && !after.contains("a"))
  }
}

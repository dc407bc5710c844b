import SyncTestSupport
import Testing

@testable import SyncStore

/// A disk that reports unwritten data as written, and then loses power.
@Suite("A disk that lies")
struct LyingDiskTests {
  @Test("F21 is detected by a peer: the copy becomes another actor, and what it had sent comes back")
  func foundOut() throws {
    let (left, right) = (SimulatedHost(seed: 1, machine: "left"), SimulatedHost(seed: 2, machine: "right"))
    let peer = try Store.create(on: right)
    var store = try Store.create(on: left, id: peer.id)
    try store.put("before", "1")
    try peer.receive(from: store)
    let actor = try store.actor
    left.storage.lies = true
    try store.put("sent", "2", durability: .full)
    try peer.receive(from: store)
    left.storage.lies = false
    left.storage.crash(keeping: { _, _ in .lost })
    left.losePower(seed: 1)
    store = try Store.open(on: left)
    #expect(try store.text("before") == "1")
    #expect(try store.get("sent") == nil)
    // Its sequence numbers are those of writes that the peer already has.
    try store.put("unsent", "3")
    #expect(try store.actor == actor)
    #expect(#expect(throws: StoreError.self) { try peer.receive(from: store) }?.code == .rolledBack)
    try store.becomeNewActor()
    #expect(try store.actor != actor)
    try store.synchronize(with: peer)
    try peer.receive(from: store)
    for copy in [store, peer] {
      #expect(try copy.text("before") == "1")
      #expect(try copy.text("sent") == "2")
      #expect(try copy.text("unsent") == "3")
    }
    #expect(try store.digest() == peer.digest())
  }
}

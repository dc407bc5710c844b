import Dispatch
import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Group keys changed concurrently by several members, and with failures midway.
@Suite("Changes of the group keys")
struct KeyChangeTests {
  private let host = SimulatedHost()
  private let plan = FaultPlan()

  /// A store with keys and a member, over storage with planned failures.
  private func store() throws -> Store {
    try Store.create(on: host).close()
    let store = try Store.open(on: host, failing: plan)
    _ = try StoreKeys(store).makeGroupKeys()
    let device = try #require(DeviceID(bytes: [UInt8](repeating: 3, count: 32)))
    try Membership(store).put(
      Member(device: device, name: "lost", right: .readWrite, addresses: [], joined: 0))
    return store
  }

  @Test("F81 a revocation that could not begin its epoch is completed when it is requested again")
  func revokedInPart() throws {
    let store = try store()
    let members = Membership(store)
    plan.fail(.rename, on: "keys/group")
    #expect(throws: ReplicationError.self) { try members.revokeAndRenewKeys("lost") }
    #expect(try members.members().map(\.right) == [.revoked])
    let epoch = try members.revokeAndRenewKeys("lost")
    #expect(try StoreKeys(store).groupKeys().current == epoch && epoch > 1)
  }

  @Test("F80 an epoch begun while another member's keys are merged is not lost")
  func mergedConcurrently() throws {
    let store = try store()
    let keys = StoreKeys(store)
    var given = try keys.groupKeys()
    _ = try given.beginEpoch([UInt8](repeating: 7, count: 32), random: 7)
    let begun = Locked<UInt32?>(nil)
    let isDone = DispatchSemaphore(value: 0)
    plan.before(.open, of: "keys/group.new") {
      let thread = Thread {
        let epoch = try? Membership(store).revokeAndRenewKeys("lost")
        begun.withLock { $0 = epoch }
        isDone.signal()
      }
      thread.start()
      // Long enough for a caller that does not wait.
      _ = isDone.wait(timeout: .now() + 0.3)
      isDone.signal()
    }
    try keys.merge(given)
    while begun.withLock({ $0 == nil }) { usleep(1000) }
    let ring = try keys.groupKeys()
    #expect(ring.epochs.count == 3 && ring.epochs.contains(given.current))
    #expect(try ring.key(of: #require(begun.withLock { $0 })) != nil)
  }

  @Test(
    "F80 sessions restart when an epoch begins on a node that has seen no other epoch",
    .timeLimit(.minutes(Patience.minutes(1))))
  func quietNode() async throws {
    let (server, client, _) = try await pair()
    let third = try await TestCopy.joined(try Node.invite(to: server.store), "third")
    _ = try await third.node.synchronize(with: "first")
    _ = try await client.node.synchronize(with: "first")
    await server.node.stop()
    let again = try Node(store: server.store)
    let address = try await again.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    try Membership(client.store).add(
      Peer(name: "first", addresses: [address.description], device: again.device))
    client.node.keepInStep(KeepPolicy(retry: 1...50))
    for await state in client.node.states(of: "first") where state.phase == .live { break }
    let epoch = try Membership(server.store).revokeAndRenewKeys("third")
    while try StoreKeys(client.store).groupKeys().current != epoch {
      try await Task.sleep(for: .milliseconds(5))
    }
    await client.node.stop()
    await again.stop()
  }
}

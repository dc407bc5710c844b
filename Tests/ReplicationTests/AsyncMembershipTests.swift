import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite(.timeLimit(.minutes(Patience.minutes(1)))) struct AsyncMembershipTests {
  private let directory = TemporaryDirectory()

  @Test func `a store is prepared, invites, and gets a node without blocking a task`() async throws {
    let store = try await AsyncStore.create(at: directory.path + "/hub")
    try await Node.prepare(store, name: "hub")
    let token = try await Node.invite(to: store, addresses: [Endpoint(host: "127.0.0.1", port: 7420)])
    #expect(try Invitation(text: token).storeName == store.store.name)
    await #expect(throws: ReplicationError.self) { try await Node.invite(to: store, lifetime: 0) }
    let node = try await Node.make(store: store)
    let membership = AsyncMembership(store)
    #expect(try await membership.members().map(\.name) == ["hub"])
    #expect(try await membership.member(node.device)?.name == "hub")
    #expect(try await membership.member(named: "hub")?.device == node.device)
    #expect(try await membership.contact(of: node.device) == nil)
    try await membership.add(Peer(name: "shed", addresses: ["10.0.0.1:7420"]))
    #expect(try await membership.peers().map(\.name) == ["shed"])
    #expect(try await membership.peer(named: "shed")?.addresses == ["10.0.0.1:7420"])
    #expect(try await membership.remove(peer: "shed"))
    await #expect(throws: ReplicationError.self) { try await membership.revoke("nobody") }
    let refused = await #expect(throws: ReplicationError.self) {
      try await membership.revokeAndRenewKeys("hub")
    }
    #expect(refused?.code == .notAllowed)
    let other = try #require(DeviceID(bytes: [UInt8](repeating: 3, count: 32)))
    try membership.membership.put(
      Member(device: other, name: "lost", right: .readWrite, addresses: [], joined: 0))
    try await membership.revokeAndRenewKeys("lost")
    #expect(try await membership.members().map(\.right) == [.readWrite, .revoked])
    await node.stop()
    try await store.close()
  }

  @Test func `adding peers waits for a writer without a pool thread`() async throws {
    let store = try await AsyncStore.create(at: directory.path + "/hub")
    let membership = AsyncMembership(store)
    let (begun, release) = (AsyncStream<Void>.makeStream(), DispatchSemaphore(value: 0))
    let blocking = store.store
    Thread {
      try? blocking.transaction { _ in
        begun.continuation.yield()
        release.wait()
      }
    }.start()
    for await _ in begun.stream { break }
    let count = 2 * max(10, ProcessInfo.processInfo.activeProcessorCount)
    let waiting = Locked(0)
    let workers = (0..<count).map { number in
      Task {
        waiting.withLock { $0 += 1 }
        try await membership.add(Peer(name: "peer-\(number)", addresses: ["10.0.0.1:7420"]))
      }
    }
    while waiting.withLock({ $0 }) < count { try await Task.sleep(for: .milliseconds(1)) }
    #expect(await Task.detached { 42 }.value == 42)
    #expect(try await membership.peers().isEmpty)
    release.signal()
    for worker in workers { try await worker.value }
    #expect(try await membership.peers().count == count)
    try await store.close()
  }

  @Test func `an operation cancelled before it began does nothing`() async throws {
    let store = try await AsyncStore.create(at: directory.path + "/hub")
    let task = Task { () -> StoreError.Code? in
      unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
      do {
        try await Node.prepare(store, name: "hub")
        return nil
      } catch {
        return (error as? ReplicationError)?.store?.code
      }
    }
    #expect(await task.value == .cancelled)
    #expect(try await AsyncMembership(store).members().isEmpty)
    try await store.close()
  }
}

import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite(.timeLimit(.minutes(Patience.minutes(1)))) struct MembershipTaskTests {
  private let directory = TemporaryDirectory()

  @Test func `a store is prepared, invites, and gets a node without blocking a task`() async throws {
    let path = directory.path + "/hub"
    let store = try await Store.run { try Store.create(at: path) }
    try await Node.run { try Node.prepare(store, name: "hub") }
    let token = try await Node.run {
      try Node.invite(to: store, addresses: [Endpoint(host: "127.0.0.1", port: 7420)])
    }
    #expect(try Invitation(text: token).storeName == store.name)
    await #expect(throws: ReplicationError.self) {
      try await Node.run { try Node.invite(to: store, lifetime: 0) }
    }
    let node = try await Node.run { try Node(store: store) }
    let membership = Membership(store)
    #expect(try await membership.run { try $0.members() }.map(\.name) == ["hub"])
    do throws(ReplicationError) {
      try await membership.run { membership throws(ReplicationError) in try membership.revoke("nobody") }
      Issue.record("a member that does not exist was revoked")
    } catch {
      #expect(error.code == .notAMember)
    }
    await node.stop()
    try await store.run { try $0.close() }
  }

  @Test func `adding peers waits for a writer without a pool thread`() async throws {
    let store = try Store.create(at: directory.path + "/hub")
    let membership = Membership(store)
    let (begun, release) = (AsyncStream<Void>.makeStream(), DispatchSemaphore(value: 0))
    Thread {
      try? store.transaction { _ in
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
        try await membership.run { try $0.add(Peer(name: "peer-\(number)", addresses: ["10.0.0.1:7420"])) }
      }
    }
    while waiting.withLock({ $0 }) < count { try await Task.sleep(for: .milliseconds(1)) }
    #expect(await Task.detached { 42 }.value == 42)
    #expect(try await membership.run { try $0.peers() }.isEmpty)
    release.signal()
    for worker in workers { try await worker.value }
    #expect(try await membership.run { try $0.peers() }.count == count)
    try await store.run { try $0.close() }
  }

  @Test func `an operation cancelled before it began does nothing`() async throws {
    let store = try Store.create(at: directory.path + "/hub")
    let task = Task { () -> StoreError.Code? in
      unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
      do {
        try await Node.run { try Node.prepare(store, name: "hub") }
        return nil
      } catch {
        return (error as? ReplicationError)?.store?.code
      }
    }
    #expect(await task.value == .cancelled)
    #expect(try await Membership(store).run { try $0.members() }.isEmpty)
    try await store.run { try $0.close() }
  }
}

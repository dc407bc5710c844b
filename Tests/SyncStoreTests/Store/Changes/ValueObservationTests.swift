import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Observing a key", .timeLimit(.minutes(Patience.minutes(1))))
struct ValueObservationTests {
  let host = SimulatedHost(compacting: .onRequest)

  @Test("yields the present value, then the newest, and none twice")
  func newest() async throws {
    let store = try Store.create(on: host)
    var values = store.observe("k").makeAsyncIterator()
    #expect(try await values.next() == .some(nil))
    try store.put("k", "1")
    try store.put("k", "2")
    try store.put("other", "x")
    #expect(try await values.next()??.bytes == Array("2".utf8))
    let next = Threaded {
      try? store.put("other", "y")
      _ = try? store.delete("k")
    }
    next.start()
    #expect(try await values.next() == .some(nil))
    next.join()
  }

  @Test("never misses the last of many, with a slow reader")
  func last() async throws {
    let store = try Store.create(on: host, configuration: ChangesTests.small)
    let writer = Threaded { for number in 1...2000 as ClosedRange<Int64> { try? store.put("k", number) } }
    writer.start()
    var last: Int64 = 0
    for try await value in store.observe("k") {
      guard let number = try value?.decoded(as: Int64.self) else { continue }
      #expect(number > last)
      last = number
      if last == 2000 { break }
    }
    writer.join()
    #expect(last == 2000)
  }

  @Test("yields nil once the value has expired")
  func expiry() async throws {
    let store = try Store.create(on: host)
    try store.put("k", Array("v".utf8), expiration: .at(host.time + 5))
    var values = store.observe("k").makeAsyncIterator()
    #expect(try await values.next()??.bytes == Array("v".utf8))
    host.time += 5
    #expect(try await values.next() == .some(nil))
  }

  @Test("ends when the task is cancelled, and fails when the store is closed")
  func end() async throws {
    let store = try Store.create(on: host)
    let observation = store.observe("k")
    let tasks = (0..<2).map { _ in
      Task { () -> String in
        do {
          for try await _ in observation {}
          return "end"
        } catch {
          return (error as? StoreError)?.code.description ?? "\(error)"
        }
      }
    }
    try await ChangesTests.until { store.changeSignal.count == 2 }
    tasks[0].cancel()
    #expect(await tasks[0].value == "end")
    try store.close()
    #expect(await tasks[1].value == "closed")
  }

  @Test("yields a peer's value that was stamped too far ahead once its time has come, without another write")
  func early() async throws {
    let store = try Store.create(on: host)
    let far = SimulatedHost(
      seed: 9, time: host.time + Limits.clockDriftMilliseconds + 50, machine: "far")
    let peer = try Store.create(on: far, id: store.id)
    try peer.put("k", "early")
    var values = store.observe("k").makeAsyncIterator()
    #expect(try await values.next() == .some(nil))
    try store.receive(from: peer)
    let clock = Task { [host] in
      try await ChangesTests.until { store.changeSignal.count == 1 }
      host.time += 60
    }
    #expect(try await values.next()??.bytes == Array("early".utf8))
    try await clock.value
  }

  @Test("uses one timer per waiter, however often other threads write")
  func timers() async throws {
    let store = try Store.create(on: host)
    let follower = JournalFollower<Int>(store.changeSignal) { () throws(StoreError) in
      .wait(milliseconds: 60_000)
    }
    let waiting = Task { await follower.next() }
    for number in 0..<20 {
      try await ChangesTests.until { store.changeSignal.count == 1 }
      try store.put("other", "\(number)")
    }
    try await ChangesTests.until { store.changeSignal.count == 1 }
    #expect(follower.timers == 1)
    waiting.cancel()
    guard case .cancelled = await waiting.value else { throw StoreError(.closed, "it was not cancelled") }
  }
}

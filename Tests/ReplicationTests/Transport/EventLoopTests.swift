import SyncTestSupport
import Testing

@testable import Replication

@Suite struct EventLoopTests {
  @Test func `tasks from many threads run once each, in the order of their thread`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let seen = Awaited<(thread: Int, number: Int)>()
    await withTaskGroup(of: Void.self) { group in
      for thread in 0..<8 {
        group.addTask {
          for number in 0..<200 { loop.execute { seen.put((thread, number)) } }
        }
      }
    }
    try await on(loop) {}
    let result = Dictionary(grouping: seen.pending, by: \.thread).mapValues { $0.map(\.number) }
    #expect((0..<8).allSatisfy { result[$0] == Array(0..<200) })
  }

  @Test func `a task knows that it runs on the loop, a test that it does not`() async throws {
    let test = try TestLoop()
    #expect(!test.loop.isCurrent)
    let loop = test.loop
    #expect(try await on(loop) { loop.isCurrent })
  }

  @Test func `timers fire in the order of their deadlines, and a cancelled one does not`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let seen = Awaited<Int>()
    loop.execute {
      _ = loop.schedule(after: 30) { seen.put(3) }
      _ = loop.schedule(after: 1) { seen.put(1) }
      let cancelled = loop.schedule(after: 5) { seen.put(99) }
      _ = loop.schedule(after: 10) { seen.put(2) }
      loop.cancel(cancelled)
    }
    #expect([try await seen.take(), try await seen.take(), try await seen.take()] == [1, 2, 3])
  }

  @Test func `a stopped loop still runs the tasks it was given before`() async throws {
    let loop = try EventLoop()
    let done = Awaited<Bool>()
    loop.execute { done.put(true) }
    loop.stop()
    #expect(try await done.take())
  }
}

@Suite struct TimerHeapTests {
  @Test(arguments: [1, 2, 3] as [UInt64])
  func `entries come out in order, whatever was inserted and removed`(seed: UInt64) {
    var random = seed &* 0x9E37_79B9_7F4A_7C15
    func next(_ bound: UInt64) -> UInt64 {
      random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return (random >> 33) % bound
    }
    var heap = TimerHeap<UInt64>()
    var expected: [UInt64: UInt64] = [:]
    for _ in 0..<2000 {
      let deadline = next(500)
      expected[heap.insert(deadline: deadline, deadline)] = deadline
      if next(3) > 0, let victim = expected.keys.sorted().dropFirst(Int(next(UInt64(expected.count)))).first {
        heap.remove(victim)
        expected[victim] = nil
      }
    }
    #expect(heap.count == expected.count, "seed \(seed)")
    #expect(heap.nextDeadline() == expected.values.min())
    var order: [UInt64] = []
    while let deadline = heap.popDue(at: 499) { order.append(deadline) }
    #expect(order == expected.values.sorted(), "seed \(seed)")
  }

  @Test func `entries that are not due stay`() {
    var heap = TimerHeap<String>()
    _ = heap.insert(deadline: 10, "later")
    #expect(heap.popDue(at: 9) == nil)
    #expect(heap.popDue(at: 10) == "later")
    #expect(heap.nextDeadline() == nil)
  }
}

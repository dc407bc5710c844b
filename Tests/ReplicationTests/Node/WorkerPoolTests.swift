import Foundation
import SyncStore
import Testing

@testable import Replication

/// Who waits for whom, measured in pieces of work, never in time.
@Suite("The worker pool")
struct WorkerPoolTests {
  /// The work done, in starting order.
  private final class Order: Sendable {
    private let names = Locked<[String]>([])
    func note(_ name: String) { names.withLock { $0.append(name) } }
    var all: [String] { names.withLock { $0 } }
  }

  /// A gate that blocks callers until it is opened.
  private final class Door: Sendable {
    private let waiters = Locked<(isOpen: Bool, came: Int)>((false, 0))
    func pass() {
      waiters.withLock { $0.came += 1 }
      while !waiters.withLock({ $0.isOpen }) { pause() }
    }
    func open() { waiters.withLock { $0.isOpen = true } }
    var came: Int { waiters.withLock { $0.came } }
    func waitFor(_ count: Int) { while came < count { pause() } }
    private func pause() { Thread.sleep(forTimeInterval: 0.001) }
  }

  @Test("runs the jobs of one queue in order, one at a time")
  func order() async throws {
    let pool = WorkerPool(width: 4)
    let (queue, order) = (pool.queue(), Order())
    for number in 0..<100 { queue.async(number % 3 == 0 ? .prompt : .ordinary) { order.note("\(number)") } }
    let done = Awaited<Bool>()
    queue.async { done.put(true) }
    _ = try await done.take()
    #expect(order.all == (0..<100).map { "\($0)" })
  }

  @Test("runs a job of each queue in turn, however many jobs some have")
  func turns() async throws {
    // One thread for ordinary work.
    let pool = WorkerPool(width: 3)
    let (order, door, done) = (Order(), Door(), Awaited<Bool>())
    let greedy = (0..<4).map { _ in pool.queue() }
    greedy[0].async { door.pass() }
    for (number, queue) in greedy.enumerated() {
      for _ in 0..<50 { queue.async { order.note("greedy \(number)") } }
    }
    let modest = pool.queue()
    modest.async {
      order.note("modest")
      done.put(true)
    }
    door.open()
    _ = try await done.take()
    // At most one piece of each before it, and the one that was running.
    #expect(try #require(order.all.firstIndex(of: "modest")) <= 4)
    #expect(pool.figures.longestOrdinaryWait <= 5)
  }

  @Test("starts urgent jobs at once, while all other workers are busy with long ones")
  func prompt() async throws {
    let pool = WorkerPool(width: 4)
    let (door, done) = (Door(), Awaited<Bool>())
    // More than there are threads.
    for _ in 0..<16 { pool.later { door.pass() } }
    door.waitFor(2)
    pool.queue().async(.prompt) { done.put(true) }
    _ = try await done.take()
    #expect(door.came == 2)
    #expect(pool.figures.longestPromptWait == 0)
    door.open()
  }

  @Test("runs ordinary jobs, too, while there are always urgent ones")
  func starvation() async throws {
    let pool = WorkerPool(width: 3)
    let (door, done) = (Door(), Awaited<Bool>())
    for _ in 0..<16 { pool.later(.prompt) { door.pass() } }
    door.waitFor(2)
    pool.later { done.put(true) }
    _ = try await done.take()
    #expect(door.came == 2)
    door.open()
  }
}

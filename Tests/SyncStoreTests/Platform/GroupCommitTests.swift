import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Group commit", .timeLimit(.minutes(Patience.minutes(1))))
struct GroupCommitTests {
  /// Counts rounds, each of which blocks until it is released.
  private final class Rounds: Sendable {
    let done = Atomic(0)
    let begun = Atomic(0)
    let allowed = Atomic(0)
    let isOver = Atomic(false)

    func run() {
      let round = begun.add(1, ordering: .sequentiallyConsistent).newValue
      while allowed.load(ordering: .sequentiallyConsistent) < round { SystemCall.sleep(microseconds: 50) }
      done.add(1, ordering: .sequentiallyConsistent)
    }
  }

  private final class Counter: Sendable {
    let number = Atomic(0)
  }

  private static func until(_ isSo: () -> Bool) async throws {
    while !isSo() { try await Task.sleep(for: .milliseconds(1)) }
  }

  private static func has(_ count: Int, _ number: borrowing Atomic<Int>) -> Bool {
    number.load(ordering: .sequentiallyConsistent) >= count
  }

  @Test("the caller leads the batch if no other thread does")
  func alone() {
    let (work, rounds, told) = (GroupCommit(), Rounds(), Locked<[StoreError?]>([]))
    rounds.allowed.store(9, ordering: .sequentiallyConsistent)
    work.whenDone(
      until: { Self.has(1, rounds.done) }, work: { rounds.run() },
      then: { error in told.withLock { $0.append(error) } })
    #expect(told.withLock { $0.map { $0?.code } } == [nil] && work.count == 1)
    // Nothing is left to do.
    work.whenDone(
      until: { Self.has(1, rounds.done) }, work: { rounds.run() },
      then: { error in told.withLock { $0.append(error) } })
    #expect(told.withLock { $0.map { $0?.code } } == [nil, nil])
    #expect(rounds.done.load(ordering: .relaxed) == 1)
  }

  @Test(
    "an asynchronous waiter is notified by another thread's batch; one that came too late gets a second batch"
  )
  func byAnother() async throws {
    let (work, rounds, told) = (GroupCommit(), Rounds(), Locked<[Int]>([]))
    // A separate thread, because it blocks.
    Background.runBlocking {
      try? work.wait { () throws(StoreError) in
        Self.has(1, rounds.done)
      } work: {
        rounds.run()
      }
      rounds.isOver.store(true, ordering: .releasing)
    }
    try await Self.until { Self.has(1, rounds.begun) }
    for needed in [1, 2] {
      work.whenDone(
        until: { Self.has(needed, rounds.done) }, work: { rounds.run() },
        then: { _ in told.withLock { $0.append(needed) } })
    }
    // It did not wait, and did none of the work itself.
    #expect(told.withLock { $0 } == [] && rounds.begun.load(ordering: .relaxed) == 1)
    rounds.allowed.store(1, ordering: .sequentiallyConsistent)
    try await Self.until { rounds.isOver.load(ordering: .acquiring) }
    try await Self.until { Self.has(2, rounds.begun) }
    #expect(told.withLock { $0 } == [1])
    rounds.allowed.store(2, ordering: .sequentiallyConsistent)
    try await Self.until { told.withLock { $0.count == 2 } }
    #expect(told.withLock { $0 } == [1, 2] && rounds.done.load(ordering: .relaxed) == 2)
  }

  @Test("an asynchronous waiter gets the error of a failed batch")
  func failure() async throws {
    let (work, rounds, told) = (GroupCommit(), Rounds(), Locked<[StoreError?]>([]))
    let error = StoreError(.poisoned, "a sync failed")
    Background.runBlocking {
      _ = try? work.wait { () throws(StoreError) in
        false
      } work: { () throws(StoreError) in
        rounds.run()
        throw error
      }
    }
    try await Self.until { Self.has(1, rounds.begun) }
    work.whenDone(
      until: { () throws(StoreError) in throw error }, work: {},
      then: { error in told.withLock { $0.append(error) } })
    rounds.allowed.store(1, ordering: .sequentiallyConsistent)
    try await Self.until { told.withLock { !$0.isEmpty } }
    #expect(told.withLock { $0.first??.code } == .poisoned)
  }

  @Test("no thread is left waiting, however many come and go concurrently")
  func manyThreads() async throws {
    let (work, asked, done, ended) = (GroupCommit(), Counter(), Counter(), Counter())
    let (threads, each) = (8, 400)
    for _ in 0..<threads {
      Background.runBlocking {
        for _ in 0..<each {
          let own = asked.number.add(1, ordering: .sequentiallyConsistent).newValue
          try? work.wait { () throws(StoreError) in
            Self.has(own, done.number)
          } work: { () throws(StoreError) in
            // All requests made before it started.
            done.number.store(
              asked.number.load(ordering: .sequentiallyConsistent), ordering: .sequentiallyConsistent)
          }
          let isDone = Self.has(own, done.number)
          #expect(isDone)
        }
        ended.number.add(1, ordering: .sequentiallyConsistent)
      }
    }
    try await Self.until { Self.has(threads, ended.number) }
    #expect(work.count <= threads * each && work.count > 0)
  }
}

import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

@Suite("Background work")
struct BackgroundTests {
  private static func niceness() -> Int32 { getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0) }

  @Test("yields the processor to writers when it compacts, not when it prepares the next segment")
  func yieldsProcessor() async {
    let tidying = await withCheckedContinuation { done in
      Background.runMaintenance { done.resume(returning: Self.niceness()) }
    }
    let preparing = await withCheckedContinuation { done in
      Background.prepare { done.resume(returning: Self.niceness()) }
    }
    // A program already at that niceness cannot be lowered further.
    #expect(preparing < tidying || Self.niceness() >= 10)
  }

  @Test(
    "shared by threads makes each pass of a loop once, and returns after the last",
    arguments: [0, 1, 2, 3, 1000])
  func sharedLoop(count: Int) {
    let made = Locked([Int](repeating: 0, count: count))
    Background.concurrentPerform(count) { pass in
      if pass.isMultiple(of: 7) { usleep(50) }
      made.withLock { $0[pass] += 1 }
    }
    #expect(made.withLock { $0 } == [Int](repeating: 1, count: count))
  }

  @Test("may share a loop within the passes of another", .timeLimit(.minutes(Patience.minutes(1))))
  func nestedLoops() {
    let made = Atomic(0)
    Background.concurrentPerform(16) { _ in
      Background.concurrentPerform(16) { _ in
        Background.concurrentPerform(4) { _ in _ = made.add(1, ordering: .relaxed) }
      }
    }
    #expect(made.load(ordering: .relaxed) == 16 * 16 * 4)
  }

  @Test("beyond the number of threads is done as they get free", .timeLimit(.minutes(Patience.minutes(1))))
  func backlog() async {
    let most = Background.processors + 4
    let running = Locked((now: 0, most: 0))
    await withTaskGroup { group in
      for _ in 0..<5 * most {
        group.addTask {
          await withCheckedContinuation { done in
            Background.runMaintenance {
              running.withLock { ($0.now, $0.most) = ($0.now + 1, max($0.most, $0.now + 1)) }
              usleep(5000)
              running.withLock { $0.now -= 1 }
              done.resume()
            }
          }
        }
      }
    }
    #expect(running.withLock { $0.most } <= most)
    #expect(running.withLock { $0.most } > 1)
  }
}

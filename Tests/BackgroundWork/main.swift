import Glibc
import SyncStore
import Synchronization

/// Gives `Background` more work than it has threads for, for longer than libdispatch waits before it counts the
/// threads of a queue with a backlog. Ends with 0 once all is done. `NamespaceTests` runs it: a child that was
/// forked, and has not been replaced, has no dispatch queues.
private let done = Atomic(0)

private func pause(_ microseconds: UInt32) {
  usleep(microseconds)
  done.add(1, ordering: .relaxed)
}

alarm(60)
let maintenance = 4 * (Background.processors + 4)
let (blocking, loops, passes) = (300, 3, 8)
for _ in 0..<maintenance { Background.runMaintenance { pause(600_000) } }
for _ in 0..<blocking { Background.runBlocking { pause(600_000) } }
for _ in 0..<loops { Background.concurrentPerform(passes) { _ in pause(300_000) } }
while done.load(ordering: .relaxed) < maintenance + blocking + loops * passes { usleep(10_000) }
print("done")

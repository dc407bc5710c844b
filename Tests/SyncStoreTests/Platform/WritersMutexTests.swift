import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

/// The mutex in the control page, on the real kernel: each instance of the page represents a process, since
/// the mutex does not depend on PIDs or TIDs.
@Suite("The writers' mutex")
struct WritersMutexTests {
  let directory = TemporaryDirectory()
  private var path: String { directory.path + "/control" }

  /// A page on the file, as an entering process has it. The first one creates it.
  private func member(isFirst: Bool = false) throws -> ControlPage {
    let storage = DiskStorage()
    let file = try storage.open(path, .openOrCreate)
    if isFirst { try file.allocate(to: ControlPage.length) }
    let mapping = try storage.open(path, .readWrite).map(ControlPage.length, writable: true)
    let page = ControlPage(mapping: mapping, lockFile: file)
    if isFirst { _ = page.begin(boot: 1, isKept: false) }
    try page.join(writes: true, path)
    return page
  }

  @Test("is held by one thread of one process, and released by that thread alone")
  func exclusion() throws {
    let (first, second) = (try member(isFirst: true), try member())
    #expect(first.lock() == .clean)
    #expect(first.lock() == .alreadyHeld && first.lock(waits: false) == .alreadyHeld)
    #expect(second.lock(waits: false) == .heldByOther)
    // Not the parts this member has acquired: they stay unchanged.
    second.unlock()
    try Threaded.run(1) { _ in
      #expect(first.lock(waits: false) == .heldByOther)
      first.unlock()
    }
    #expect(second.lock(waits: false) == .heldByOther)
    first.unlock()
    #expect(second.lock(waits: false) == .clean)
    #expect(first.lock(waits: false) == .heldByOther)
    second.unlock()
    second.unlock()
    #expect(first.lock() == .clean)
    first.unlock()
  }

  @Test(
    "is acquired after the death of its holder's process, also by a thread that was asleep",
    arguments: [false, true])
  func death(whileAsleep: Bool) throws {
    var first: ControlPage? = try member(isFirst: true)
    let (second, third) = (try member(), try member())
    #expect(first?.lock() == .clean)
    let acquired = Locked<ControlPage.Acquisition?>(nil)
    let sleeper = Threaded {
      let acquisition = second.lock()
      acquired.withLock { $0 = acquisition }
      second.unlock()
    }
    if whileAsleep {
      sleeper.start()
      while !second.isContended { usleep(1000) }
    }
    // Its files are closed, as the kernel does when a process ends. The word still names it.
    first = nil
    if !whileAsleep { sleeper.start() }
    sleeper.join()
    #expect(acquired.withLock { $0 } == .ownerDied)
    #expect(third.lock() == .clean)
    third.unlock()
  }

  @Test("is acquired after its holding thread ended, although the process is alive")
  func threadEnds() throws {
    let (first, second) = (try member(isFirst: true), try member())
    for member in [first, second] {
      try Threaded.run(1) { _ in #expect(first.lock() == .clean) }
      #expect(member.lock() == .ownerDied)
      member.unlock()
    }
    #expect(second.lock() == .clean)
    second.unlock()
  }

  @Test("wakes each of many waiters, one after the other")
  func contended() throws {
    let members = try (0..<4).map { try member(isFirst: $0 == 0) }
    let count = Locked(0)
    let inside = Locked(0)
    try Threaded.run(8) { thread in
      let page = members[thread % 4]
      for round in 0..<200 {
        #expect(page.lock() == .clean)
        #expect(
          inside.withLock {
            $0 += 1; return $0
          } == 1)
        count.withLock { $0 += 1 }
        if round % 50 == 0 { usleep(2000) }
        inside.withLock { $0 -= 1 }
        page.unlock()
      }
    }
    #expect(count.withLock { $0 } == 1600)
  }

  @Test("gives no number twice, though the page is recreated")
  func numbers() throws {
    var (numbers, kept): (Set<UInt64>, [ControlPage]) = ([], [])
    for round in 0..<6 {
      let page = try member(isFirst: round % 3 == 0)
      #expect(numbers.insert(page.member.load(ordering: .relaxed)).inserted)
      kept.append(page)
    }
    // A waiter of an earlier process has nothing to release in this one.
    #expect(kept[5].lock() == .clean)
    kept[0].unlock()
    #expect(kept[4].lock(waits: false) == .heldByOther)
    kept[5].unlock()
  }

  @Test("excludes programs that use a pthread mutex: neither writes concurrently with the other")
  func older() throws {
    let page = try member(isFirst: true)
    unsafe page.mapping.withPointer(ControlPage.Field.mutex, to: pthread_mutex_t.self) {
      #expect(unsafe pthread_mutex_trylock($0) == EINVAL)
    }
    page[ControlPage.Field.mutexFormat] = 0
    let mapping = page.mapping
    let other = ControlPage(mapping: mapping, lockFile: try DiskStorage().open(path, .readWrite))
    #expect(#expect(throws: StoreError.self) { try other.join(writes: true, path) }?.code == .busy)
    let before = mapping.bytes(0..<ControlPage.length)
    try other.join(writes: false, path)
    #expect(mapping.bytes(0..<ControlPage.length) == before)
  }

  @Test("is not left locked by threads cancelled during a write, or its sync")
  func cancelled() async {
    await #expect(processExitsWith: .success) {
      Patience.limitProcess()
      let directory = TemporaryDirectory()
      let store = try Store.create(at: directory.path + "/store")
      let done = Locked(0)
      for round in 0..<30 {
        let threads = (0..<2).map { thread in
          CancelledThread {
            while true {
              try? store.put(Key("\(thread)"), [UInt8](repeating: 1, count: round * 100), durability: .full)
              done.withLock { $0 += 1 }
              pthread_testcancel()
            }
          }
        }
        usleep(UInt32(round * 137))
        for thread in threads { thread.cancel() }
        try store.put("round", "\(round)", durability: .full)
      }
      #expect(done.withLock { $0 } > 0)
      #expect(try store.text("round") == "29" && store.verify().isClean)
      try store.close()
    }
  }
}

/// A thread that can be cancelled from outside, unlike Foundation's.
private final class CancelledThread: @unchecked Sendable {
  private var thread = pthread_t()

  private final class Body {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
  }

  init(_ run: @escaping @Sendable () -> Void) {
    // Never released: the thread ends in the middle of it.
    unsafe pthread_create(
      &thread, nil,
      { argument in
        unsafe Unmanaged<Body>.fromOpaque(argument!).takeUnretainedValue().run()
        return nil
      }, unsafe Unmanaged.passRetained(Body(run)).toOpaque())
  }

  /// Cancels it, and waits for its end.
  func cancel() {
    pthread_cancel(thread)
    pthread_join(thread, nil)
  }
}

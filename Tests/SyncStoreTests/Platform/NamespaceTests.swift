import Foundation
import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

/// Processes on one store whose PIDs and TIDs are meaningless to each other: each is process 1 with thread 1
/// in its own PID namespace, like a program in a container.
@Suite("Processes in separate PID namespaces")
struct NamespaceTests {
  /// Words shared by all processes of a test. They outlive the process that wrote them.
  struct Board: Sendable {
    private let mapping: Mapping

    init() {
      let flags = MAP_SHARED | MAP_ANONYMOUS
      let base = unsafe mmap(nil, 4096, PROT_READ | PROT_WRITE, flags, -1, 0)!
      mapping = unsafe Mapping(unsafeBase: base, count: 4096) { unsafe munmap($0, $1) }
    }

    subscript(word: Int) -> UInt64 {
      get { mapping.withAtomic(word * 8) { $0.load(ordering: .sequentiallyConsistent) } }
      nonmutating set {
        mapping.withAtomic(word * 8) { $0.store(newValue, ordering: .sequentiallyConsistent) }
      }
    }
  }

  /// The stop word of all writers, and one word per writer: its last acknowledged transaction.
  static let stop = 0
  static func acknowledged(_ writer: Int) -> Int { 8 * (writer + 1) }

  static let configuration = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 256 << 10)

  static func keys(_ writer: Int, _ number: UInt64) throws -> [Key] {
    try ["a", "b"].map { try Key("\(writer)/\(number)/\($0)") }
  }

  /// Consecutive transactions until it is told to stop. Returns 0, or the number of the failed check.
  static func write(_ writer: Int, at path: String, _ board: Board) -> Int32 {
    do {
      let store = try Store.open(at: path, configuration: configuration)
      // The transaction in progress when the previous writer was killed is repeated.
      var number = board[acknowledged(writer)]
      while board[stop] == 0 {
        number += 1
        if number.isMultiple(of: 3) {
          for key in try keys(writer, number) { try store.put(key, "\(number)") }
        } else {
          try store.transaction { transaction in
            for key in try keys(writer, number) { try transaction.put(key, Array("\(number)".utf8)) }
            if number.isMultiple(of: 64) { usleep(500) }
          }
        }
        board[acknowledged(writer)] = number
      }
      try store.close()
      return 0
    } catch {
      let code = (error as? StoreError)?.code
      return code == .busy ? 11 : code == .damaged ? 12 : 13
    }
  }

  /// Whether the mutex is free at this moment.
  static func isFree(_ store: Store) -> Bool {
    guard let open = try? store.tryBeginTransaction() else { return false }
    open.rollBack()
    return true
  }

  @Test(
    "lose no acknowledged write, and refuse none, whichever is stopped, killed and restarted",
    .timeLimit(.minutes(Patience.minutes(1))))
  func containers() async {
    await #expect(processExitsWith: .success) {
      Patience.limitProcess()
      let directory = TemporaryDirectory()
      let path = directory.path + "/store"
      let board = Board()
      // Created by a child: a store opened before a fork belongs to the parent.
      let maker = ForkedProcess {
        let store = try? Store.create(at: path, configuration: NamespaceTests.configuration)
        return (try? store?.close()) == nil ? 1 : 0
      }
      #expect(maker.finish() == 0)
      // It is at work when the first process of another namespace arrives.
      let resident = ForkedProcess { NamespaceTests.write(0, at: path, board) }
      while board[NamespaceTests.acknowledged(0)] < 20 { usleep(1000) }
      func container(_ writer: Int) -> (container: ForkedProcess, process: ForkedProcess)? {
        ForkedProcess.inNamespace { NamespaceTests.write(writer, at: path, board) }
      }
      guard var second = container(1), var third = container(2) else {
        print("not tested: this machine gives nobody a PID namespace")
        resident.signal(SIGKILL)
        resident.finish()
        return
      }
      for round in 0..<6 {
        let before = (1...2).map { board[NamespaceTests.acknowledged($0)] }
        while board[NamespaceTests.acknowledged(1)] < before[0] + 30
          || board[NamespaceTests.acknowledged(2)] < before[1] + 30
        {
          usleep(1000)
        }
        // Waiters block while the holder of the mutex is stopped; after SIGCONT it continues normally.
        second.process.signal(SIGSTOP)
        usleep(UInt32(20_000 + 7000 * round))
        second.process.signal(SIGCONT)
        third.process.signal(SIGKILL)
        #expect(third.container.finish() == 128 + SIGKILL)
        // Both are process 1 again, and one of them writes.
        guard let next = container(2) else { break }
        third = next
        if round == 3 {
          // It may die with the mutex while the other one enters.
          second.process.signal(SIGKILL)
          second.container.finish()
          second = try #require(container(1))
        }
      }
      board[NamespaceTests.stop] = 1
      for process in [resident, second.container, third.container] { #expect(process.finish() == 0) }
      let store = try Store.open(at: path)
      for writer in 0...2 {
        let last = board[NamespaceTests.acknowledged(writer)]
        #expect(last > 20)
        for number in 1...last {
          for key in try NamespaceTests.keys(writer, number) { #expect(try store.text(key) == "\(number)") }
        }
      }
      #expect(try store.verify().isClean)
      try store.close()
    }
  }

  @Test(
    "survive more background work than they have threads for",
    .timeLimit(.minutes(Patience.minutes(1))))
  func backlog() throws {
    guard try ChildProcess.run(["/usr/bin/unshare", "--pid", "--fork", "/bin/true"]).code == 0 else {
      return print("not tested: this machine gives nobody a PID namespace")
    }
    // /proc is that of another namespace: libdispatch finds none of this process's threads there.
    let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
    let program = (own as NSString).deletingLastPathComponent + "/background-work"
    let ended = try ChildProcess.run(["/usr/bin/unshare", "--pid", "--fork", program])
    #expect(ended.code == 0 && ended.text == "done\n", "\(ended)")
  }

  @Test(
    "wait for a stopped holder of the mutex, and continue after its death",
    .timeLimit(.minutes(Patience.minutes(1))))
  func stopped() async {
    await #expect(processExitsWith: .success) {
      Patience.limitProcess()
      let directory = TemporaryDirectory()
      let path = directory.path + "/store"
      let board = Board()
      let maker = ForkedProcess {
        let store = try? Store.create(at: path, configuration: NamespaceTests.configuration)
        return (try? store?.close()) == nil ? 1 : 0
      }
      #expect(maker.finish() == 0)
      let holder = ForkedProcess.inNamespace {
        guard let store = try? Store.open(at: path, configuration: NamespaceTests.configuration) else {
          return 1
        }
        try? store.transaction { transaction in
          try transaction.put("half", [1])
          board[1] = 1
          while true { usleep(1000) }
        }
        return 2
      }
      let waiter = ForkedProcess.inNamespace {
        while board[1] == 0 { usleep(1000) }
        guard let store = try? Store.open(at: path, configuration: NamespaceTests.configuration),
          !NamespaceTests.isFree(store)
        else { return 3 }
        board[2] = 1
        guard (try? store.put("k", [2])) != nil else { return 4 }
        board[3] = 1
        return (try? store.close()) == nil ? 5 : 0
      }
      guard let holder, let waiter else {
        print("not tested: this machine gives nobody a PID namespace")
        return
      }
      while board[2] == 0 { usleep(1000) }
      holder.process.signal(SIGSTOP)
      usleep(300_000)
      #expect(board[3] == 0)
      holder.process.signal(SIGKILL)
      holder.container.finish()
      #expect(waiter.container.finish() == 0 && board[3] == 1)
      let store = try Store.open(at: path)
      #expect(try store.get("half") == nil && store.get("k")?.bytes == [2])
      try store.close()
    }
  }

  @Test(
    "A store left open by its process is free again although a forked child is alive (F97)")
  func forkedChild() async {
    await #expect(processExitsWith: .success) {
      Patience.limitProcess()
      let directory = TemporaryDirectory()
      let path = directory.path + "/store"
      let board = Board()
      let opener = ForkedProcess {
        guard let store = try? Store.create(at: path), (try? store.put("k", [1])) != nil else { return 1 }
        let child = ForkedProcess {
          board[3] = 1
          withExtendedLifetime(store) { while board[1] == 0 { usleep(1000) } }
          return 0
        }
        board[2] = UInt64(child.processID)
        // Until its first run the child holds the parent's lock: the code that drops it runs in the child.
        while board[3] == 0 { usleep(1000) }
        // It exits without closing anything.
        return withExtendedLifetime(store) { 0 }
      }
      #expect(opener.finish() == 0 && kill(pid_t(board[2]), 0) == 0)
      let store = try Store.open(at: path)
      #expect(try store.get("k")?.bytes == [1])
      // The error names the process that has the store open, not the refused one, which has a lock on another
      // byte.
      let refused = ForkedProcess {
        do { _ = try Store.open(at: path) } catch let error as StoreError where error.code == .busy {
          let names = [getppid(), getpid()].map { error.message.contains("process \($0) (") }
          return names == [true, false] ? 0 : 2
        } catch {}
        return 1
      }
      #expect(refused.finish() == 0)
      try store.close()
      board[1] = 1
    }
  }
}

import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

/// Calls interrupted by a signal.
@Suite("An interrupted system call")
struct InterruptionTests {
  @Test("F32 is retried, and any other failure is not")
  func again() {
    var answers: [(Int, Int32)] = [(-1, EINTR), (-1, EINTR), (7, 0)]
    #expect(
      SystemCall.retrying {
        let answer = answers.removeFirst()
        errno = answer.1
        return answer.0
      } == 7)
    answers = [(-1, EIO), (7, 0)]
    #expect(
      SystemCall.retrying {
        let answer = answers.removeFirst()
        errno = answer.1
        return answer.0
      } == -1)
  }

  @Test("F32 a short read continues to the end")
  func shortReads() throws {
    // Kernel files are returned in pieces of a page or less, whatever the requested size.
    let path = "/proc/kallsyms"
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    try #require(descriptor >= 0)
    let file = try DiskStorage().regularFile(descriptor, path)
    var buffer = [UInt8](repeating: 0, count: 100_000)
    let once = unsafe pread(descriptor, &buffer, buffer.count, 0)
    #expect(once > 0 && once < buffer.count)
    let bytes = try file.readUnsized(buffer.count, at: 0)
    #expect(bytes.count == buffer.count && bytes.prefix(once).elementsEqual(buffer.prefix(once)))
  }

  @Test("F32 a short write continues with the rest before it is reported done")
  func shortWrites() async {
    await #expect(processExitsWith: .success) {
      Patience.limitProcess()
      let directory = TemporaryDirectory()
      let file = try DiskStorage().open(directory.path + "/file", .create)
      // The first call writes up to the limit, without an error; only the next one reports the reason.
      signal(SIGXFSZ, SIG_IGN)
      var limit = rlimit(rlim_cur: 10_000, rlim_max: 10_000)
      guard unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) == 0 else { _exit(1) }
      let bytes = (0..<20_000).map { UInt8(truncatingIfNeeded: $0 / 7) }
      do throws(StoreError) {
        try file.write(bytes, at: 0)
        _exit(2)
      } catch {
        guard error.code == .diskFull, try file.status().size == 10_000 else { _exit(3) }
        guard try file.read(20_000, at: 0) == Array(bytes.prefix(10_000)) else { _exit(4) }
      }
    }
  }

  @Test("F32 a wait for a lock continues after real signals")
  func lock() throws {
    let directory = TemporaryDirectory()
    let storage = DiskStorage()
    let holder = try storage.open(directory.path + "/file", .create)
    let waiter = try storage.open(directory.path + "/file", .readWrite)
    #expect(try holder.lock(byte: 0, .exclusive, wait: false))
    var action = sigaction()
    // Without SA_RESTART, and not used elsewhere.
    unsafe action.__sigaction_handler.sa_handler = { _ in interruptions.add(1, ordering: .relaxed) }
    unsafe sigaction(SIGUSR2, &action, nil)
    // Created before a handler needs it.
    #expect(interruptions.load(ordering: .relaxed) == 0)
    let result = Locked<Result<Bool, StoreError>?>(nil)
    let thread = Threaded {
      // The test threads have signals blocked, and new threads inherit that.
      var signals = sigset_t()
      unsafe sigemptyset(&signals)
      unsafe sigaddset(&signals, SIGUSR2)
      unsafe pthread_sigmask(SIG_UNBLOCK, &signals, nil)
      let locked: Result<Bool, StoreError>
      do throws(StoreError) {
        locked = .success(try waiter.lock(byte: 0, .exclusive, wait: true))
      } catch { locked = .failure(error) }
      result.withLock { $0 = locked }
    }
    thread.start()
    for _ in 0..<20 {
      usleep(2000)
      thread.signal(SIGUSR2)
    }
    #expect(result.withLock { $0 == nil })
    #expect(try holder.lock(byte: 0, .none, wait: false))
    thread.join()
    #expect(interruptions.load(ordering: .relaxed) > 0)
    #expect(try result.withLock { $0 }?.get() == true)
  }
}

/// Threads of this test; a handler may only touch an atomic.
private let interruptions = Atomic(0)

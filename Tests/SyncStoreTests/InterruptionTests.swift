import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

/// Calls that a signal breaks off.
@Suite("A call that is interrupted")
struct InterruptionTests {
  @Test("F32 is made again, and any other failure is not")
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

  @Test("F32 a wait for a lock goes on behind real signals")
  func lock() throws {
    let directory = TemporaryDirectory()
    let storage = DiskStorage()
    let holder = try storage.open(directory.path + "/file", .create)
    let waiter = try storage.open(directory.path + "/file", .readWrite)
    #expect(try holder.lock(byte: 0, .exclusive, wait: false))
    var action = sigaction()
    // Without SA_RESTART, and nothing else uses it.
    unsafe action.__sigaction_handler.sa_handler = { _ in interruptions.add(1, ordering: .relaxed) }
    unsafe sigaction(SIGUSR2, &action, nil)
    // Made before a handler needs it.
    #expect(interruptions.load(ordering: .relaxed) == 0)
    let result = Locked<Result<Bool, StoreError>?>(nil)
    let thread = Threaded {
      // The threads that tests run on have signals blocked, and hand that down.
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

/// Of threads of this test; a handler may touch nothing but an atomic.
private let interruptions = Atomic(0)

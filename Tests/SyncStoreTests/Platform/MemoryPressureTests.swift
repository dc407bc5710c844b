import Foundation
import Testing

@testable import SyncStore

/// Listeners of a program. Other tests also announce, on their own threads: their events are ignored here.
@Suite("A listener for memory pressure")
struct MemoryPressureTests {
  /// Events received on the thread that made it.
  final class Heard: Sendable {
    private let thread = pthread_self()
    private let levels = Locked<[MemoryPressure.Level]>([])

    func note(_ level: MemoryPressure.Level) {
      if pthread_equal(thread, pthread_self()) != 0 { levels.withLock { $0.append(level) } }
    }

    var all: [MemoryPressure.Level] { levels.withLock { $0 } }
  }

  @Test("is notified on the announcing thread, until it is cancelled")
  func cancelled() {
    let heard = Heard()
    let listener = MemoryPressure.listen { heard.note($0) }
    MemoryPressure.announce(.some)
    MemoryPressure.announce(.critical)
    listener.cancel()
    MemoryPressure.announce(.critical)
    #expect(heard.all == [.some, .critical])
    listener.cancel()
  }

  @Test("ends with its last reference")
  func released() {
    let heard = Heard()
    var listener: MemoryPressure.Listener? = MemoryPressure.listen { heard.note($0) }
    weak let gone = listener
    MemoryPressure.announce(.some)
    #expect(gone != nil)
    listener = nil
    MemoryPressure.announce(.some)
    #expect(gone == nil && heard.all == [.some])
  }

  @Test("may cancel itself, or create another one, during a notification")
  func within() {
    let (first, second) = (Heard(), Heard())
    let made = Locked<[MemoryPressure.Listener]>([])
    let listener = MemoryPressure.listen { level in
      first.note(level)
      guard first.all.count == 1, made.withLock({ $0.isEmpty }) else { return }
      let another = MemoryPressure.listen { second.note($0) }
      made.withLock { $0.append(another) }
    }
    MemoryPressure.announce(.some)
    listener.cancel()
    MemoryPressure.announce(.critical)
    #expect(first.all == [.some] && second.all == [.critical])
  }

  @Test("uses the kernel's events where they are available")
  func kernel() {
    let listener = MemoryPressure.listen { _ in }
    if getuid() == 0, FileManager.default.isWritableFile(atPath: "/proc/pressure/memory") {
      #expect(MemoryPressure.source != nil)
    }
    listener.cancel()
  }
}

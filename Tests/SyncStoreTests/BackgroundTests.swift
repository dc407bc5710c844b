import Glibc
import Testing

@testable import SyncStore

@Suite("Work beside the callers")
struct BackgroundTests {
  private static func niceness() -> Int32 { getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0) }

  @Test("leaves the processor to writers where it tidies, and not where it makes ready what they need next")
  func givesWay() async {
    let tidying = await withCheckedContinuation { done in
      Background.runMaintenance { done.resume(returning: Self.niceness()) }
    }
    let preparing = await withCheckedContinuation { done in
      Background.prepare { done.resume(returning: Self.niceness()) }
    }
    // A program already at that niceness cannot be lowered further.
    #expect(preparing < tidying || Self.niceness() >= 10)
  }
}

import Glibc
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
}

import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite("Two running copies with one identity")
struct IdentityWatchTests {
  private static let here = IdentityWatch.Origin(host: "192.0.2.1")
  private static let there = IdentityWatch.Origin(host: "192.0.2.2")
  private let device = DeviceID(bytes: [UInt8](repeating: 7, count: 32))!

  @Test("are reported once, at the third time that they displace each other")
  func reported() {
    var watch = IdentityWatch()
    #expect(watch.displaced(device, by: Self.there, from: Self.here, at: 1_000) == nil)
    #expect(watch.displaced(device, by: Self.here, from: Self.there, at: 2_000) == nil)
    #expect(!watch.isConflict(device))
    #expect(
      watch.displaced(device, by: Self.there, from: Self.here, at: 3_000) == ["192.0.2.1", "192.0.2.2"])
    #expect(watch.isConflict(device))
    for time in 4...20 {
      #expect(watch.displaced(device, by: Self.here, from: Self.there, at: UInt64(time) * 1000) == nil)
    }
    // After it was quiet for long it is news again.
    let later = 20_000 + 2 * IdentityWatch.windowMilliseconds
    for step in 0..<2 {
      #expect(watch.displaced(device, by: Self.here, from: Self.there, at: later + UInt64(step)) == nil)
    }
    #expect(watch.displaced(device, by: Self.here, from: Self.there, at: later + 2) != nil)
  }

  @Test("are not taken for a device that moves now and then, or that only comes again from where it was")
  func moving() {
    var watch = IdentityWatch()
    for time in 1...20 {
      #expect(
        watch.displaced(
          device, by: Self.there, from: Self.here, at: UInt64(time) * IdentityWatch.windowMilliseconds) == nil
      )
      #expect(watch.displaced(device, by: Self.here, from: Self.here, at: UInt64(time) * 1000) == nil)
    }
  }

  @Test("are told apart by their incarnations where they come from one machine")
  func incarnations() {
    var watch = IdentityWatch()
    let (one, other) = (
      IdentityWatch.Origin(host: "h", actor: Samples.left),
      IdentityWatch.Origin(host: "h", actor: Samples.right)
    )
    _ = watch.displaced(device, by: one, from: other, at: 1)
    _ = watch.displaced(device, by: other, from: one, at: 2)
    #expect(watch.displaced(device, by: one, from: other, at: 3) == ["h"])
  }
}

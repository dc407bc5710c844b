import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite("Two running copies with one identity")
struct DuplicateIdentityDetectorTests {
  private static let here = DuplicateIdentityDetector.Origin(host: "192.0.2.1")
  private static let there = DuplicateIdentityDetector.Origin(host: "192.0.2.2")
  private let device = DeviceID(bytes: [UInt8](repeating: 7, count: 32))!

  @Test("are reported once, the third time that they displace each other")
  func reported() {
    var watch = DuplicateIdentityDetector()
    #expect(watch.displaced(device, by: Self.there, from: Self.here, at: 1_000) == nil)
    #expect(watch.displaced(device, by: Self.here, from: Self.there, at: 2_000) == nil)
    #expect(!watch.isConflict(device))
    #expect(
      watch.displaced(device, by: Self.there, from: Self.here, at: 3_000) == ["192.0.2.1", "192.0.2.2"])
    #expect(watch.isConflict(device))
    for time in 4...20 {
      #expect(watch.displaced(device, by: Self.here, from: Self.there, at: UInt64(time) * 1000) == nil)
    }
    // After a long quiet period it is reported again.
    let later = 20_000 + 2 * DuplicateIdentityDetector.windowMilliseconds
    for step in 0..<2 {
      #expect(watch.displaced(device, by: Self.here, from: Self.there, at: later + UInt64(step)) == nil)
    }
    #expect(watch.displaced(device, by: Self.here, from: Self.there, at: later + 2) != nil)
  }

  @Test("are not confused with a device that moves occasionally, or reconnects from the same address")
  func moving() {
    var watch = DuplicateIdentityDetector()
    for time in 1...20 {
      #expect(
        watch.displaced(
          device, by: Self.there, from: Self.here,
          at: UInt64(time) * DuplicateIdentityDetector.windowMilliseconds) == nil
      )
      #expect(watch.displaced(device, by: Self.here, from: Self.here, at: UInt64(time) * 1000) == nil)
    }
  }

  @Test("are distinguished by their incarnations when they connect from one machine")
  func incarnations() {
    var watch = DuplicateIdentityDetector()
    let (one, other) = (
      DuplicateIdentityDetector.Origin(host: "h", actor: Samples.left),
      DuplicateIdentityDetector.Origin(host: "h", actor: Samples.right)
    )
    _ = watch.displaced(device, by: one, from: other, at: 1)
    _ = watch.displaced(device, by: other, from: one, at: 2)
    #expect(watch.displaced(device, by: one, from: other, at: 3) == ["h"])
  }

  @Test("are certain at once when a member reports that it has counted them")
  func reportedByMember() {
    var watch = DuplicateIdentityDetector()
    let later = 3_000 + 2 * DuplicateIdentityDetector.windowMilliseconds
    let news = [1_000, 2_000, later].map {
      watch.reportedDisplaced(
        device, reason: DuplicateIdentityDetector.conflictMessage("second", hosts: []), at: $0)
    }
    #expect(news == [true, false, true] && watch.isConflict(device))
    let text = DuplicateIdentityDetector.ownConflictMessage(
      "first refused: " + DuplicateIdentityDetector.conflictMessage("second", hosts: ["h"]))
    #expect(text.contains("second (h)") && text.components(separatedBy: "stop one of them").count == 2)
  }

  /// A copied directory keeps the key; the copy takes a new actor.
  @Test(
    "are reported at the member that both connect to, and at each of the two",
    .timeLimit(.minutes(Patience.minutes(2))))
  func everywhere() async throws {
    let hub = try TestCopy.first()
    _ = try await hub.listen()
    let directory = TemporaryDirectory()
    let paths = ["one", "other"].map { directory.path + "/" + $0 }
    let token = try Node.invite(to: hub.store)
    let joined = try await Node.join(
      token, at: paths[0], name: "second", configuration: TestCopy.configuration)
    try joined.store.close()
    try FileManager.default.copyItem(atPath: paths[0], toPath: paths[1])
    let twins = try paths.map {
      try TestCopy(directory, try Store.open(at: $0, configuration: TestCopy.configuration))
    }
    for twin in twins { twin.node.keepInStep(KeepPolicy(retry: 1...50)) }
    let device = twins[0].node.device
    // As SIGHUP does: otherwise they would meet twice a minute.
    while ([hub] + twins).contains(where: { $0.node.state.identityConflicts[device] == nil }) {
      for twin in twins { twin.node.retryNow() }
      try await Task.sleep(for: .milliseconds(50))
    }
    for copy in [hub] + twins {
      let warnings = copy.log.lines.filter { $0.contains("warning") && $0.contains("destroy the store of") }
      #expect(warnings.count == 1, "\(warnings)")
      await copy.node.stop()
    }
  }
}

import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Error messages: the problem in the caller's terms, and the remedy.
@Suite("An error message names") struct ErrorTextTests {
  let directory = TemporaryDirectory()

  func message(_ body: () throws -> Void) -> String {
    #expect(throws: StoreError.self) { try body() }?.message ?? ""
  }

  @Test("the call that creates a store where there is none")
  func missing() {
    #expect(message { _ = try Store.open(at: directory.path + "/none") }.contains("`Store.create`"))
    #expect(message { _ = try Store.open(at: directory.path) }.contains("`Store.create`"))
  }

  @Test("a directory or link given where a file is required")
  func directories() throws {
    let store = try Store.create(at: directory.path + "/store")
    let link = directory.path + "/link"
    try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: directory.path + "/store/x")
    #expect(
      message { try store.put("k", fileAt: directory.path) } == "is a directory: name a file that can be read"
    )
    #expect(
      message { try store.put("k", fileAt: link) }
        .hasPrefix("is a symbolic link that leads nowhere: name a file"))
    #expect(message { try store.put("k", fileAt: "/dev/null") }.hasPrefix("is no regular file: name a file"))
    #expect(
      message { _ = try store.importAll(fromPropertyListAt: directory.path) }
        == "is a directory: name a property list")
    #expect(message { _ = try MMKVFile(path: directory.path) } == "is a directory: name a file of MMKV")
    #expect(try store.get("k") == nil)
  }

  @Test("this process as the one that has a store open, if it does")
  func own() throws {
    let handle = StoreHandle.at(directory.path + "/store")
    try handle.withStore { try $0.put("k", 1) }
    try handle.close {
      #expect(message { _ = try Store.open(at: handle.path) }.hasPrefix("this process has the store closed"))
      #expect(message { try Store.remove(at: handle.path) }.hasPrefix("this process has the store closed"))
    }
    try handle.withStore { store in
      #expect(message { try Store.remove(at: handle.path) }.contains("close it in all processes first"))
      try store.put("k", 2)
    }
    try handle.close()
  }

  @Test("the actual and the expected value type, and no internal type")
  func types() throws {
    struct Reading: Codable { var celsius: Double }
    let store = try Store.create(at: directory.path + "/store")
    try store.put("k", [1, 2])
    let properties = message { _ = try store.get("k", as: Reading.self) }
    #expect(properties.contains("not an object with properties (in a value of type Reading)"))
    try store.put("k", Reading(celsius: 1))
    struct List: Decodable {
      init(from decoder: any Decoder) throws { _ = try decoder.unkeyedContainer() }
    }
    let list = message { _ = try store.get("k", as: List.self) }
    #expect(list.contains("not a list (in a value of type List)"))
    #expect(!(properties + list).contains("Any"))
  }

  @Test(
    "the final name of a file, not its temporary one",
    arguments: [
      ("/s/index.new", "/s/index"), ("/s/STORE.new", "/s/STORE"), ("/s/keys/ring.new", "/s/keys/ring"),
      ("/s/journal/next", "/s/journal"), ("/s/journal/next.compacted", "/s/journal"),
      ("/s/journal/reserve.compacted.new", "/s/journal/reserve.compacted"),
      ("/s/blobs/partial/new-12-3", "/s/blobs"),
      ("/home/me/report.pdf.4711-2-0123456789abcdef.part", "/home/me/report.pdf"),
      // User-defined names.
      ("/home/me/report.new", "/home/me/report.new"), ("/home/me/video.part", "/home/me/video.part"),
      ("/home/me/1-2.part", "/home/me/1-2.part"), ("/home/me/next", "/home/me/next"),
      ("relative.new", "relative.new"),
    ])
  func temporaryNames(path: String, shown: String) {
    let error = StoreError(.diskFull, "cannot write to it: no room: make room", path: path)
    #expect(error.path == shown && error.description == "\(shown): cannot write to it: no room: make room")
  }

  @Test(
    "no temporary name, whichever disk call fails",
    arguments: ["export", "export of a small value", "backup", "restore", "open"])
  func failingCalls(work: String) throws {
    var call = 1
    var failed = 0
    while true {
      let host = SimulatedHost(seed: UInt64(call))
      let plan = FaultPlan()
      let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
      let store = try Store.create(on: host)
      try store.put("k", [UInt8](repeating: 7, count: 100_000))
      try store.put("small", [1])
      try store.backUp(to: "/saved")
      try store.close()
      var before = plan.calls
      func fail() { (before, _) = (plan.calls, plan.fail(number: call)) }
      if work == "restore" || work == "open" { fail() }
      do {
        if work == "restore" {
          _ = try Store.restore(
            from: "/saved", to: "/restored", state: nil, replacing: false, environment: environment)
        } else {
          let again = try Store.open(on: host, failing: plan)
          if work != "open" { fail() }
          switch work {
          case "export": _ = try again.export("k", toFileAt: "/exported")
          case "backup": _ = try again.backUp(to: "/again")
          case "open": try again.put("more", [1])
          default: _ = try again.export("small", toFileAt: "/exported")
          }
        }
      } catch {
        failed += 1
        for leak in [".new", ".part", ".restoring", "/next", "/new-"] {
          #expect(!error.description.contains(leak), "\(work), call \(call): \(error.description)")
        }
      }
      if plan.calls - before < call { break }
      call = work.hasPrefix("export") ? call + 1 : EachCall.longAfter(call)
    }
    #expect(failed > 1, "\(failed) of \(call)")
  }
}

import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// Real processes on the real disk that kill themselves at a named step: at its first or last occurrence,
/// with `KILL_POINTS=all` (`make killpoints`) at each.
@Suite("A process killed at a named step")
struct KillPointTests {
  static let all = unsafe getenv("KILL_POINTS") != nil

  /// Occurrences of each point in the work, which is deterministic.
  static func calls(of work: KilledWork) throws -> [(call: StorageCall, path: String)] {
    let directory = TemporaryDirectory()
    try work.prepare(directory.path)
    let calls = Locked<[(call: StorageCall, path: String)]>([])
    try work.run(directory.path, FaultPlan { call, path in calls.withLock { $0.append((call, path)) } })
    return calls.withLock { $0 }
  }

  @Test(
    "has lost nothing that was acknowledged, and left nothing half done (F3, F4, F5, F6, F7, F8, F12)",
    arguments: KilledWork.allCases)
  func killed(work: KilledWork) async throws {
    let calls = try Self.calls(of: work)
    for (place, point) in KillPoint.all.enumerated() where point.work == work {
      let count = calls.count { point.matches($0.call, $0.path) }
      #expect(count > 0, "\(point.name) is never met")
      guard count > 0 else { continue }
      let numbers = Self.all ? Set(1...count) : [place.isMultiple(of: 2) ? 1 : count]
      for number in numbers.sorted() { try await kill(at: point, number) }
      print("\(point.name): \(numbers.count) kills at \(count) calls")
    }
  }

  func kill(at point: KillPoint, _ number: Int) async throws {
    let directory = TemporaryDirectory()
    try point.work.prepare(directory.path)
    let index = try #require(KillPoint.all.firstIndex { $0.name == point.name })
    // It must die of nothing else, such as an error or trap.
    await #expect(processExitsWith: .signal(SIGKILL), "\(point.name), call \(number)") {
      [index = index as Int, number = number as Int, path = directory.path as String] in
      Patience.limitProcess()
      let point = KillPoint.all[index]
      let met = Locked(0)
      let plan = FaultPlan { call, path in
        guard point.matches(call, path) else { return }
        let isLast = met.withLock { met in
          met += 1
          return met == number
        }
        if isLast { Glibc.kill(getpid(), SIGKILL) }
      }
      try point.work.run(path, plan)
    }
    try look(at: directory.path, point.work, "\(point.name), call \(number)")
  }

  /// Acknowledged operations survive, the interrupted one completely or not at all; and work can continue.
  func look(at directory: String, _ work: KilledWork, _ place: String) throws {
    let configuration = KilledWork.configuration(sealed: work == .renewKeys)
    let path = directory + "/store"
    let store: Store
    do { store = try Store.open(at: path, configuration: configuration) } catch {
      // An interrupted creation has made no store yet, and is repeated.
      #expect(work == .create && error.code == .notAStore, "\(place): \(error)")
      guard work == .create else { return }
      store = try Store.create(at: path, configuration: configuration)
    }
    let expected: [Int]
    switch work {
    case .create: expected = [0]
    case .write:
      let (begun, acknowledged) = try Notes.read(directory)
      #expect(begun == acknowledged || begun == acknowledged + 1, "\(place)")
      expected = [acknowledged, begun]
    default: expected = [KilledWork.operations]
    }
    let found = try content(of: store)
    #expect(
      expected.contains { KilledWork.content(after: $0) == found },
      "\(place): \(found.count) keys, none of \(expected) operations")
    #expect(try store.verify().isClean, "\(place)")
    if work == .renewKeys { #expect(try store.finishRekeying().isComplete, "\(place)") }
    if work == .compact { try store.compact() }
    if work == .backUp || work == .restore {
      // The backup keeps its content, and an incomplete continuation is resumed.
      let count = work == .backUp ? KilledWork.backedUp : KilledWork.operations
      _ = try Store.restore(from: directory + "/backup", to: directory + "/first", state: 1)
      let first = try Store.open(at: directory + "/first", configuration: configuration)
      let isAsItWas = try KilledWork.content(after: count) == content(of: first)
      #expect(isAsItWas, "\(place)")
      try first.close()
      let next = directory + (work == .backUp ? "/backup" : "/next")
      _ = try store.backUp(to: next)
      try Store.verifyBackup(next)
    }
    try store.put("afterwards", "x", durability: .full)
    #expect(try store.verify().isClean, "\(place)")
    try store.close()
    let again = try Store.open(at: path, configuration: configuration)
    #expect(try again.text("afterwards") == "x" && again.status().keys == found.count + 1, "\(place)")
    try again.close()
  }

  func content(of store: Store) throws -> [String: [UInt8]] {
    var content: [String: [UInt8]] = [:]
    for entry in try store.list() {
      content[String(decoding: entry.key.bytes, as: UTF8.self)] = try store.get(entry.key)?.bytes
    }
    return content
  }
}

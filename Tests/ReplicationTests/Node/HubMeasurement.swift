import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// One hub, a daemon in its own process, with many connected members that write occasionally: memory,
/// processor time, and the latency until the others have a write. Run by `make hub`; not part of the suite.
@Suite(
  .enabled(if: ProcessInfo.processInfo.environment["MEASURE_HUB"] != nil), .timeLimit(.minutes(30)),
  .serialized)
struct HubMeasurement {
  private static func setting(_ name: String, _ standard: Int) -> Int {
    ProcessInfo.processInfo.environment[name].flatMap { Int($0) } ?? standard
  }

  private let members = setting("MEASURE_HUB", 2000)
  private let seconds = setting("MEASURE_SECONDS", 30)
  /// Seconds between two writes of one member.
  private let pause = setting("MEASURE_PAUSE", 600)

  @Test func `a hub and its live members`() async throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    let identities = try (0..<members).map { _ in try DeviceIdentity.generate() }
    let (id, keys) = try prepare(path, identities)
    let hub = try Hub(path)
    defer { hub.end() }
    let thin = LoopBound(ThinMembers(), to: try EventLoop.shared())
    let board = LoopBound(Board(), to: try EventLoop.shared())
    // One-time allocations are not attributed to members.
    try await ThinMember.connect(identities[0], to: hub.address, id, keys, thin)
    let before = try hub.anonymousBytes()
    let (start, idle) = (MonotonicClock.milliseconds(), try hub.processorSeconds())
    for identity in identities.dropFirst() {
      try await ThinMember.connect(identity, to: hub.address, id, keys, thin)
    }
    let connected = Double(MonotonicClock.milliseconds() - start) / 1000
    let quiet = try hub.anonymousBytes() - before
    say(
      "\(members) members are live after \(text(connected)) s, \(text(try hub.processorSeconds() - idle)) s of the hub's "
        + "processor time: \(quiet / (members - 1) / 1024) KiB each at the hub"
    )
    try await on(try EventLoop.shared()) { [members] in
      board.value.wanted = members - 1
      for member in thin.value.list {
        member.onRecords = { board.value.got($0) }
        member.onClosed = { board.value.ends.append("\($0)") }
      }
    }
    // From then on each of them is in the vectors.
    let (first, cpu) = (MonotonicClock.milliseconds(), try hub.processorSeconds())
    try await on(try EventLoop.shared()) {
      for number in thin.value.list.indices { board.value.write(thin.value.list[number]) }
    }
    try await settle(board)
    let loud = try hub.anonymousBytes() - before
    say(
      "each has written once, all others have it after \(text(Double(MonotonicClock.milliseconds() - first) / 1000)) s, "
        + "\(text(try hub.processorSeconds() - cpu)) s of the hub's processor time: "
        + "\(loud / (members - 1) / 1024) KiB each at the hub")

    let rate = Double(members) / Double(pause)
    let (begin, used) = (MonotonicClock.milliseconds(), try hub.processorSeconds())
    try await on(try EventLoop.shared()) { board.value.latencies = [] }
    var random = SplitMix64(seed: 1)
    var count = 0
    while MonotonicClock.milliseconds() - begin < UInt64(seconds) * 1000 {
      let number = Int(random.next() % UInt64(members))
      try await on(try EventLoop.shared()) { board.value.write(thin.value.list[number]) }
      count += 1
      // Not in sync with any.
      try await Task.sleep(for: .seconds(Double(random.next() % 2000) / 1000 / rate))
    }
    try await settle(board)
    let passed = Double(MonotonicClock.milliseconds() - begin) / 1000
    let busy = try hub.processorSeconds() - used
    let latencies = try await on(try EventLoop.shared()) { board.value.latencies }
    say(
      "\(count) writes in \(text(passed)) s: the hub uses \(text(100 * busy / passed)) % of a core, "
        + "\(text(1000 * busy / Double(max(1, count)))) ms for each write and its \(members - 1) receivers")
    for (name, value) in [("the first", \Latency.first), ("half", \Latency.half), ("all", \Latency.all)] {
      let sorted = latencies.map { $0[keyPath: value] }.sorted()
      guard !sorted.isEmpty else { continue }
      say(
        "until \(name) of the others have it: median \(text(sorted[sorted.count / 2])) ms, "
          + "99th percentile \(text(sorted[min(sorted.count - 1, sorted.count * 99 / 100)])) ms")
    }
    let last = try hub.anonymousBytes() - before
    say("\(last / (members - 1) / 1024) KiB each at the hub, \(try hub.anonymousBytes() >> 20) MiB in all")
    let ends = try await on(try EventLoop.shared()) { board.value.ends }
    #expect(ends.isEmpty, "\(ends.count) sessions ended: \(ends.first ?? "")")
    #expect(last / (members - 1) < 100 << 10)
  }

  private func say(_ line: String) { FileHandle.standardError.write(Data("hub: \(line)\n".utf8)) }
  private func text(_ value: Double) -> String { String(format: "%.1f", value) }

  /// A store that has these members.
  private func prepare(_ path: String, _ identities: [DeviceIdentity]) throws -> (StoreID, GroupKeyRing) {
    let store = try Store.create(at: path, name: "hub", configuration: Configuration(durability: .relaxed))
    try Node.prepare(store, name: "hub")
    for (number, identity) in identities.enumerated() {
      try Membership(store).put(
        Member(device: identity.id, name: "m\(number)", right: .readWrite, addresses: [], joined: 0))
    }
    let keys = try StoreKeys(store).groupKeys()
    let id = store.id
    try store.close()
    return (id, keys)
  }

  /// Waits until all have the write.
  private func settle(_ board: LoopBound<Board>) async throws {
    while try await on(try EventLoop.shared(), { !board.value.open.isEmpty && board.value.ends.isEmpty }) {
      try await Task.sleep(for: .milliseconds(10))
    }
  }

  private struct Latency: Sendable {
    var first = 0.0
    var half = 0.0
    var all = 0.0
  }

  /// Tracks who has received what.
  private final class Board {
    var wanted = 0
    var open: [[UInt8]: (begun: UInt64, count: Int, latency: Latency)] = [:]
    var latencies: [Latency] = []
    var ends: [String] = []
    private var last = 0

    func write(_ member: ThinMember) {
      last += 1
      let key = Array("news/\(last)".utf8)
      open[key] = (MonotonicClock.nanoseconds(), 0, Latency())
      member.write(key, Array("a value of some bytes, as a sensor would write it: \(last)".utf8))
    }

    func got(_ records: [PositionedRecord]) {
      let now = MonotonicClock.nanoseconds()
      for record in records {
        guard var entry = open[record.record.key] else { continue }
        entry.count += 1
        let passed = Double(now - entry.begun) / 1_000_000
        if entry.count == 1 { entry.latency.first = passed }
        if entry.count == (wanted + 1) / 2 { entry.latency.half = passed }
        if entry.count == wanted {
          entry.latency.all = passed
          latencies.append(entry.latency)
          open[record.record.key] = nil
        } else {
          open[record.record.key] = entry
        }
      }
    }
  }

  /// The daemon.
  private final class Hub {
    private let process = Process()
    let address: Endpoint

    init(_ store: String) throws {
      let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
      process.executableURL = URL(fileURLWithPath: (own as NSString).deletingLastPathComponent + "/sync-cli")
      process.arguments = ["--store", store, "serve", "--listen", "127.0.0.1:0"]
      let output = Pipe()
      process.standardOutput = output
      process.standardError = FileHandle(forWritingAtPath: "/dev/null")
      try process.run()
      var said = ""
      while !said.hasSuffix("\n") {
        let more = output.fileHandleForReading.availableData
        guard !more.isEmpty else { throw StoreError(.inputOutput, "the daemon does not listen") }
        said += String(decoding: more, as: UTF8.self)
      }
      let port = said.split(separator: ":").last?.trimmingCharacters(in: .whitespacesAndNewlines)
      address = Endpoint(host: "127.0.0.1", port: try #require(port.flatMap { UInt16($0) }))
    }

    func end() {
      process.terminate()
      process.waitUntilExit()
    }

    func anonymousBytes() throws -> Int {
      let status = try String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)
      let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") })
      return try #require(line.split(whereSeparator: { !$0.isNumber }).first.flatMap { Int($0) }) << 10
    }

    func processorSeconds() throws -> Double {
      let stat = try String(contentsOfFile: "/proc/\(process.processIdentifier)/stat", encoding: .utf8)
      let fields = try #require(stat.split(separator: ")").last).split(separator: " ")
      return (Double(fields[11]) ?? 0) / 100 + (Double(fields[12]) ?? 0) / 100
    }
  }
}

import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// A power loss assembled from the real files of a process that kills itself: everything is copied at each of
/// its syncs, and at its end. The surviving state may be any mixture of durable and live pages, sizes and
/// names: some hundred are tried, thousands with `KILL_POINTS=all` (`make killpoints`).
@Suite("Any subset of the unsynced pages of a killed process")
struct RealPageSubsetTests {
  @Test(
    "keeps all durable writes, whole transactions, and none without earlier ones (F15, F16, F18, F19, F24)"
  )
  func subsets() async throws {
    let (directory, images) = (TemporaryDirectory(inMemory: true), TemporaryDirectory(inMemory: true))
    try Store.create(
      at: directory.path + "/store", name: nil, id: nil, configuration: PowerWork.configuration,
      environment: KilledWork.environment(FaultPlan())
    ).close()
    let before = try PowerState(of: directory.path + "/store")
    await #expect(processExitsWith: .signal(SIGKILL)) {
      [path = directory.path as String, images = images.path as String] in
      Patience.limitProcess()
      try PowerWork.run(path, images)
      Glibc.kill(getpid(), SIGKILL)
    }
    let crashes = try PowerWork.crashes(images.path, from: before, end: directory.path)
    #expect(crashes.count > 10)
    var (states, losses) = (0, 0)
    for crash in crashes {
      var random = SplitMix64(seed: UInt64(crash.number))
      // Exactly the durable state, the whole live state, and mixtures with much or little of either.
      for choice in 0..<(KillPointTests.all ? 300 : 12) {
        let eighths: UInt64 = choice < 2 ? [0, 8][choice] : [1, 4, 7][choice % 3]
        let content = crash.content { random.next() % 8 < eighths }
        let found = try look(directory.path + "/store", crash, content, "crash \(crash.number), \(choice)")
        states += 1
        if let found, found < crash.begun { losses += 1 }
      }
    }
    #expect(states >= 200 && losses > 20, "\(losses) of \(states) have lost something")
  }

  /// Opens the surviving state, after another boot; returns the number of surviving operations.
  private func look(
    _ path: String, _ crash: PowerCrash, _ content: [String: [UInt8]?], _ place: String
  ) throws -> Int? {
    try PowerState.lay(content, at: path)
    // State that the kernel would have forgotten.
    let plan = FaultPlan()
    plan.fail(.mark, forever: true)
    var environment = KilledWork.environment(plan)
    environment.boot = "after \(place)"
    let store = try Store.open(at: path, configuration: PowerWork.configuration, environment: environment)
    defer { try? store.close() }
    var found: [String: [UInt64]] = [:]
    for entry in try store.list() {
      found[String(decoding: entry.key.bytes, as: UTF8.self)] = try store.get(entry.key).map {
        PowerWork.print(of: $0.bytes)
      }
    }
    let count = (crash.durable...crash.begun).first { PowerWork.content(after: $0) == found }
    #expect(
      count != nil, "\(place): \(found.keys.sorted()), \(crash.durable) to \(crash.begun) operations")
    let damage = try store.verify().damage
    #expect(damage.isEmpty, "\(place): \(damage)")
    try store.put("afterwards", "x", durability: .full)
    #expect(try store.text("afterwards") == "x")
    return count
  }
}

/// The work of the process: transactions, every third of which waits until it is durable.
private enum PowerWork {
  static let operations = 18
  static let configuration = Configuration(durability: .relaxed, blobThreshold: 4096, segmentBytes: 64 << 10)
  static func isDurable(_ number: Int) -> Bool { number % 3 == 1 }

  static func value(_ number: Int) -> [UInt8] {
    let count = number == 8 ? (4 << 20) + 1 : number % 5 == 4 ? 6000 : 2000 + 13 * number
    return [UInt8](repeating: UInt8(number + 1), count: count)
  }

  /// Length and hash of each value, by key: comparing millions of bytes one by one is slow in a debug build.
  static func content(after count: Int) -> [String: [UInt64]] {
    var content: [String: [UInt64]] = [:]
    for number in 0..<count {
      for half in ["first", "second"] {
        content["\(half) \(number)"] = print(of: value(number))
        if number % 4 == 3 { content["\(half) \(number - 2)"] = nil }
      }
    }
    return content
  }

  static func print(of bytes: [UInt8]) -> [UInt64] { [UInt64(bytes.count), XXH3.hash64(bytes, seed: 0)] }

  private static func perform(_ number: Int, in store: Store) throws {
    try store.transaction(durability: isDurable(number) ? .full : nil) { transaction in
      for half in ["first", "second"] {
        try transaction.put(Key("\(half) \(number)"), value(number))
        if number % 4 == 3 { try transaction.delete(Key("\(half) \(number - 2)")) }
      }
    }
  }

  /// Works in `directory`, and copies its state at each sync, before the call, into `images`.
  static func run(_ directory: String, _ images: String) throws {
    let notes = try Notes(directory)
    let number = Locked(0)
    let plan = FaultPlan { call, path in
      guard call == .sync || call == .syncDirectory else { return }
      let event = number.withLock { number in
        defer { number += 1 }
        return number
      }
      do { try note(event, call, path, directory, images) } catch { fatalError("\(error)") }
    }
    let store = try Store.open(
      at: directory + "/store", configuration: configuration, environment: KilledWork.environment(plan))
    for number in 0..<operations {
      try notes.write(begun: number)
      try perform(number, in: store)
      try notes.write(acknowledged: number)
    }
  }

  private static func note(
    _ event: Int, _ call: StorageCall, _ path: String, _ directory: String, _ images: String
  ) throws {
    let state = try PowerState(of: directory + "/store")
    let (begun, acknowledged) = try Notes.read(directory)
    let lines = ["\(call.rawValue) \(path)", "\(begun) \(acknowledged)"] + state.lines
    let disk = DiskStorage()
    func keep(_ name: String, _ bytes: [UInt8]) throws {
      try disk.open("\(images)/\(name)", .create).write(bytes, at: 0)
    }
    try keep("\(event)", Array(lines.joined(separator: "\n").utf8))
    for (inode, bytes) in state.contents { try keep("\(event).\(inode)", bytes) }
  }

  /// The possible moments of the loss, with the state durable then: between the observed syncs, and at the
  /// end.
  static func crashes(_ images: String, from before: PowerState, end directory: String) throws -> [PowerCrash]
  {
    let disk = DiskStorage()
    var crashes: [PowerCrash] = []
    var durable = before
    // The last known name of an inode: a file is synced under the name it was opened by.
    var names: [String: UInt64] = before.inodes
    var event = 0
    while let text = try disk.contents(of: "\(images)/\(event)", limit: 1 << 20) {
      defer { event += 1 }
      let lines = String(decoding: text, as: UTF8.self).split(separator: "\n")
      let call = try #require(lines[0].split(separator: " ", maxSplits: 1).last.map(String.init))
      let counts = lines[1].split(separator: " ").compactMap { Int($0) }
      var live = try PowerState(lines: lines[2...])
      names.merge(live.inodes) { $1 }
      for (inode, isDirectory) in live.kinds where !isDirectory {
        live.contents[inode] = try disk.contents(of: "\(images)/\(event).\(inode)", limit: 1 << 24)
      }
      crashes.append(
        PowerCrash(number: event, old: durable, live: live, begun: counts[0], durable: promised(counts[1])))
      // The sync happens now.
      let inode = try #require(names[call], "\(call) was never seen")
      if live.kinds[inode] == true {
        durable.take(namesOf: call, from: live)
      } else {
        durable.contents[inode] = live.contents[inode]
        durable.kinds[inode] = false
      }
    }
    let (begun, acknowledged) = try Notes.read(directory)
    let end = try PowerState(of: directory + "/store")
    return crashes + [
      PowerCrash(number: event, old: durable, live: end, begun: begun, durable: promised(acknowledged))
    ]
  }

  /// The durable ones of that many acknowledged operations: waiting for one write includes all earlier ones.
  private static func promised(_ acknowledged: Int) -> Int {
    (0..<acknowledged).last(where: isDurable).map { $0 + 1 } ?? 0
  }
}

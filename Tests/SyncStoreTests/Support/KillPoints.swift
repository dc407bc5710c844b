import Glibc
import SyncTestSupport

@testable import SyncStore

/// A step at which a real process is killed: a call of the storage seam, identified by its kind and path.
struct KillPoint: Sendable {
  let name: String
  let work: KilledWork
  let call: StorageCall
  /// The last components of the call's path, with digits written as `#`; a lone `#` is any name. For a rename
  /// it is the new name.
  let path: String

  init(_ name: String, _ work: KilledWork, _ call: StorageCall, _ path: String) {
    (self.name, self.work, self.call, self.path) = (name, work, call, path)
  }

  func matches(_ call: StorageCall, _ path: String) -> Bool {
    guard call == self.call else { return false }
    let (wanted, parts) = (self.path.split(separator: "/"), path.split(separator: "/"))
    guard parts.count >= wanted.count else { return false }
    return zip(wanted, parts.suffix(wanted.count)).allSatisfy { $0 == "#" || $0 == Self.pattern($1) }
  }

  /// A name with each run of hexadecimal digits that has a decimal one replaced by `#`.
  static func pattern(_ name: some StringProtocol) -> String {
    var pattern = ""
    var run = ""
    for character in String(name) + "/" {
      if character.isHexDigit {
        run.append(character)
      } else {
        pattern += run.contains(where: \.isNumber) ? "#" : run
        pattern.append(character)
        run = ""
      }
    }
    return String(pattern.dropLast())
  }

  static let all: [KillPoint] = [
    KillPoint("the control page is made", .create, .allocate, "store/control"),
    KillPoint("the identity is written", .create, .write, "store/STORE.new"),
    KillPoint("the identity gets its name", .create, .rename, "store/STORE"),
    KillPoint("the first segment gets its name", .create, .rename, "journal/#.segment"),
    KillPoint("the index gets its name", .create, .rename, "store/index"),
    KillPoint("the directory of a new store is synced", .create, .syncDirectory, "store"),

    KillPoint("a segment is made", .write, .open, "journal/next.new"),
    KillPoint("a segment has its blocks", .write, .allocate, "journal/next.new"),
    KillPoint("a segment that has no name yet is synced", .write, .sync, "journal/next.new"),
    KillPoint("a segment gets its name", .write, .rename, "journal/#.segment"),
    KillPoint("the names of segments are synced", .write, .syncDirectory, "store/journal"),
    KillPoint("a segment is synced", .write, .sync, "journal/#.segment"),
    KillPoint("the index grows", .write, .allocate, "store/index"),
    KillPoint("a pack is made", .write, .allocate, "packs/#.pack"),
    KillPoint("a packed value is written", .write, .write, "packs/#.pack"),
    KillPoint("a packed value is synced", .write, .sync, "packs/#.pack"),
    KillPoint("a large value is written", .write, .write, "blobs/partial/#"),
    KillPoint("a large value gets its name", .write, .rename, "blobs/objects/#/#"),
    KillPoint("the name of a large value is synced", .write, .syncDirectory, "blobs/objects/#"),

    KillPoint("what was not synced is set aside", .recover, .write, "journal/torn-#-#.new"),
    KillPoint("what was set aside gets its name", .recover, .rename, "journal/torn-#-#"),
    KillPoint("a recovered segment is synced", .recover, .sync, "journal/#.segment"),
    KillPoint("a recovered segment gets its name", .recover, .rename, "journal/#.segment"),
    KillPoint("a recovered journal's names are synced", .recover, .syncDirectory, "store/journal"),
    KillPoint("the index is written anew", .recover, .write, "store/index.new"),
    KillPoint("the index is put in place", .recover, .rename, "store/index"),
    KillPoint("the ledger is put in place", .recover, .rename, "store/ledger"),

    KillPoint("a part of the reserve is taken for a copy", .compact, .rename, "journal/next.compacted"),
    KillPoint("a compacted segment is written", .compact, .write, "journal/reserve.compacted"),
    KillPoint("a compacted segment is synced", .compact, .sync, "journal/reserve.compacted"),
    KillPoint("a compacted segment gets its name", .compact, .rename, "journal/#-#-#.segment"),
    KillPoint("a compacted segment's name is synced", .compact, .syncDirectory, "store/journal"),
    KillPoint("a segment that was compacted is removed", .compact, .remove, "journal/#.segment"),

    KillPoint("the ring of keys is written", .renewKeys, .write, "keys/ring.new"),
    KillPoint("the ring of keys is put in place", .renewKeys, .rename, "keys/ring"),
    KillPoint("the name of the ring is synced", .renewKeys, .syncDirectory, "store/keys"),
    KillPoint("a segment under the new key gets its name", .renewKeys, .rename, "journal/#-#-#.segment"),
    KillPoint("a segment under the old key is removed", .renewKeys, .remove, "journal/#.segment"),
    KillPoint("a pack under the new key is written", .renewKeys, .write, "packs/#.pack"),
    KillPoint("a pack under the old key is removed", .renewKeys, .remove, "packs/#.pack"),

    KillPoint("a state is added to a backup", .backUp, .write, "backup"),
    KillPoint("a state that was added is synced", .backUp, .sync, "backup"),
    KillPoint("a backup is written", .backUp, .write, "whole.new"),
    KillPoint("a backup is synced", .backUp, .sync, "whole.new"),
    KillPoint("a backup gets its name", .backUp, .rename, "whole"),

    KillPoint("a restored segment is written", .restore, .write, "store.restoring/journal/#.segment"),
    KillPoint("a restored value is written", .restore, .write, "store.restoring/blobs/objects/#/#"),
    KillPoint("the restored identity gets its name", .restore, .rename, "store.restoring/STORE"),
    KillPoint("the restored store changes places", .restore, .rename, "store"),
    KillPoint("the replaced identity is removed", .restore, .remove, "store.restoring/STORE"),
    KillPoint("the replaced journal is removed", .restore, .remove, "store.restoring/journal/#.segment"),
  ]
}

/// The work of a killed process, on the real disk. Acknowledged operations are recorded in a file outside the
/// store.
enum KilledWork: String, CaseIterable, Codable, Sendable {
  case create, write, recover, compact, renewKeys, backUp, restore

  /// Operations of `write`.
  static let operations = 60
  /// Operations in the first backup, which a later one extends.
  static let backedUp = 30
  static let passphrase = Passphrase("of one who is killed")

  static func configuration(sealed: Bool) -> Configuration {
    var configuration = Configuration(durability: .relaxed, blobThreshold: 4096, segmentBytes: 64 << 10)
    if sealed { configuration.passphrase = passphrase }
    configuration.passphraseCost = Scrypt.Parameters(logN: 1, r: 1, p: 1)
    return configuration
  }

  /// The real machine with a single thread: the same calls each time, and `plan` sees each one first.
  static func environment(_ plan: FaultPlan) -> Environment {
    var environment = Environment.real()
    environment.storage = FaultingStorage(DiskStorage(), plan: plan)
    environment.compactionMode = .onRequest
    environment.preallocatesSegments = false
    return environment
  }

  /// Operation `number`: gives keys a value of its own, and deletes those of an earlier one. Occasionally
  /// there are many keys, so that the index grows, or the value is large.
  static func keys(_ number: Int) -> [String] {
    number % 15 == 9 ? (0..<700).map { "many \(number) \($0)" } : ["first \(number)", "second \(number)"]
  }

  static func value(_ number: Int) -> [UInt8] {
    let count =
      switch number {
      case 13: 5 << 20
      case _ where number % 15 == 9: 20
      case _ where number % 15 == 4: 9_000
      default: 1500 + 13 * number
      }
    return [UInt8](repeating: UInt8(number), count: count)
  }

  /// The content of a store after `count` operations.
  static func content(after count: Int) -> [String: [UInt8]] {
    var content: [String: [UInt8]] = [:]
    for number in 0..<count {
      for key in keys(number) { content[key] = value(number) }
      if number % 3 == 2 { for key in keys(number - 2) { content[key] = nil } }
    }
    return content
  }

  static func perform(_ number: Int, in store: Store) throws {
    try store.transaction(durability: number % 4 == 1 ? .full : nil) { transaction in
      for key in keys(number) { try transaction.put(Key(key), value(number)) }
      if number % 3 == 2 { for key in keys(number - 2) { try transaction.delete(Key(key)) } }
    }
  }

  /// Prepares the initial state in `directory`, in another process.
  func prepare(_ directory: String) throws {
    guard self != .create else { return }
    let plan = FaultPlan()
    let store = try Store.create(
      at: directory + "/store", name: nil, id: nil,
      configuration: Self.configuration(sealed: self == .renewKeys), environment: Self.environment(plan))
    guard self != .write else { return try store.close() }
    for number in 0..<Self.operations {
      try Self.perform(number, in: store)
      if number == Self.backedUp - 1, self == .backUp { _ = try store.backUp(to: directory + "/backup") }
    }
    if self == .restore { _ = try store.backUp(to: directory + "/backup") }
    if self == .recover {
      // A sync fails: the next open must read all unsynced data and write it again.
      plan.fail(.sync, on: "/journal/")
      try? store.sync()
    }
    try store.close()
    guard self == .recover else { return }
    for name in ["index", "ledger"] { _ = try DiskStorage().remove(directory + "/store/" + name) }
  }

  /// Runs the work. `write` records each operation before it starts, and when it is acknowledged.
  func run(_ directory: String, _ plan: FaultPlan) throws {
    let path = directory + "/store"
    let environment = Self.environment(plan)
    let configuration = Self.configuration(sealed: self == .renewKeys)
    switch self {
    case .create:
      try Store.create(at: path, name: nil, id: nil, configuration: configuration, environment: environment)
        .close()
    case .write:
      let notes = try Notes(directory)
      let store = try Store.open(at: path, configuration: configuration, environment: environment)
      for number in 0..<Self.operations {
        try notes.write(begun: number)
        try Self.perform(number, in: store)
        try notes.write(acknowledged: number)
      }
      try store.close()
    case .restore:
      _ = try Store.restore(
        from: directory + "/backup", to: path, state: nil, replacing: true, environment: environment)
    case .recover, .compact, .renewKeys, .backUp:
      let store = try Store.open(at: path, configuration: configuration, environment: environment)
      if self == .compact { try store.compact() }
      if self == .renewKeys { _ = try store.renewKeys() }
      if self == .backUp {
        _ = try store.backUp(to: directory + "/backup")
        _ = try store.backUp(to: directory + "/whole")
      }
      try store.close()
    }
  }
}

/// The expected state, kept outside the store by the killed process: two bytes per step, written at once.
struct Notes {
  private let descriptor: Int32

  init(_ directory: String) throws {
    descriptor = unsafe open(directory + "/notes", O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw StoreError(.inputOutput, "no notes") }
  }

  func write(begun number: Int) throws { try write(0, number) }
  func write(acknowledged number: Int) throws { try write(1, number) }

  private func write(_ kind: UInt8, _ number: Int) throws {
    let bytes = [kind, UInt8(number)]
    guard unsafe Glibc.write(descriptor, bytes, 2) == 2 else { throw StoreError(.inputOutput, "no note") }
  }

  /// The numbers of started and of acknowledged operations.
  static func read(_ directory: String) throws -> (begun: Int, acknowledged: Int) {
    let bytes = try DiskStorage().contents(of: directory + "/notes", limit: 1 << 10) ?? []
    var counts = [0, 0]
    for index in stride(from: 0, to: bytes.count - 1, by: 2) {
      counts[Int(bytes[index])] = Int(bytes[index + 1]) + 1
    }
    return (counts[0], counts[1])
  }
}

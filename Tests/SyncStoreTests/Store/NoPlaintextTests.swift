import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// No plaintext of an encrypted store reaches its files, under whatever name and for however short a time.
@Suite("The files of an encrypted store", .timeLimit(.minutes(Patience.minutes(2))))
struct NoPlaintextTests {
  /// Words contained in every key and every value.
  static let words = ["topsecretkey", "confidential value"]
  static let large = secretContent(5 << 20)
  static let configuration = Configuration(
    durability: .relaxed, blobThreshold: 1000, segmentBytes: 64 << 10)

  /// A machine whose storage is watched, and may fail.
  struct Watched {
    let host = SimulatedHost(compacting: .onRequest, encrypted: true)
    let plan = FaultPlan()
    let watch: WatchedStorage

    init() {
      watch = WatchedStorage(host.storage, words: NoPlaintextTests.words)
    }

    var environment: Environment { host.environment(over: FaultingStorage(watch, plan: plan)) }

    func create() throws -> Store {
      try Store.create(
        at: "/store", name: nil, id: nil, configuration: host.configured(NoPlaintextTests.configuration),
        environment: environment)
    }

    func open(_ path: String = "/store") throws -> Store {
      try Store.open(
        at: path, configuration: host.configured(NoPlaintextTests.configuration),
        environment: environment)
    }

    /// Including unsynced stores through mappings.
    func expectNothing(_ what: String) throws {
      #expect(watch.findings == [], "\(what)")
      for path in ["/store", "/restored"] where try host.storage.status(path) != nil {
        try NoPlaintextTests.expectNothing(in: host.storage.files(below: path), what)
      }
    }
  }

  static func expectNothing(in files: [String: [UInt8]], _ what: String) throws {
    for (path, bytes) in files {
      for word in words { #expect(Data(bytes).range(of: Data(word.utf8)) == nil, "\(what): \(path)") }
    }
  }

  /// Values of every size through every write path, and operations of a store.
  static func use(_ store: Store, _ watched: Watched) throws {
    try store.put("topsecretkey inline", secretContent(500))
    try store.put("topsecretkey packed", secretContent(70_000))
    try store.put("topsecretkey streamed") { writer in
      for start in stride(from: 0, to: large.count, by: 1 << 20) {
        try writer.append(Array(large[start..<min(start + 1 << 20, large.count)]))
      }
    }
    try watched.host.storage.open("/source", .openOrCreate).write(large + [1], at: 0)
    try store.put("topsecretkey file", fileAt: "/source")
    // One that is abandoned midway.
    struct GivenUp: Error {}
    do {
      try store.put("topsecretkey never") { writer in
        try writer.append(large)
        throw GivenUp()
      }
    } catch is GivenUp {}
    try store.transaction { transaction in
      for number in 0..<200 { try transaction.put(Key("topsecretkey \(number)"), secretContent(400)) }
    }
    try receive(secretContent(3000), store, complete: true)
    try receive(large + [2], store, complete: true)
    try receive(large + [3], store, complete: false)
    try store.delete("topsecretkey 7")
    try store.setLocal(Array("topsecretkey local".utf8), secretContent(50))
    try store.sync()
    _ = try store.compact()
    _ = try store.verify()
    _ = try store.trim(graceSeconds: 0)
  }

  /// Receives a large value from a peer in ranges that are not whole pieces.
  private static func receive(_ bytes: [UInt8], _ store: Store, complete: Bool) throws {
    let reference = BlobReference(hash: BlobHash(sha256: SHA256.hash(bytes)), size: UInt64(bytes.count))
    for start in stride(from: 0, to: bytes.count, by: 1_000_001) {
      let end = min(start + 1_000_001, bytes.count)
      try store.blobs.append(Array(bytes[start..<end]), to: reference.hash, at: UInt64(start))
    }
    if complete { try store.blobs.complete(reference, durable: true) }
  }

  @Test(
    "contain no byte of a key or a value: temporary, removed, backed up or restored ones neither"
  )
  func everyCall() throws {
    let watched = Watched()
    let store = try watched.create()
    try Self.use(store, watched)
    try watched.expectNothing("in use")
    try store.changePassphrase(to: SimulatedHost.passphrase)
    #expect(try store.renewKeys().isComplete)
    try watched.expectNothing("under other keys")
    _ = try store.backUp(to: "/backup")
    _ = try Store.restore(
      from: "/backup", to: "/restored", state: nil, replacing: false,
      environment: watched.environment)
    #expect(try watched.open("/restored").get("topsecretkey packed")?.bytes == secretContent(70_000))
    try store.close()
    #expect(try watched.open().get("topsecretkey streamed")?.bytes == Self.large)
    try watched.expectNothing("restored")
    let backup = try watched.host.storage.open("/backup", .readOnly)
    try Self.expectNothing(in: ["/backup": backup.read(backup.status().size, at: 0)], "backed up")
  }

  @Test("contain none after a kill or a loss of power at any call")
  func kills() throws {
    var number = 30
    for seed in UInt64(0)..<8 {
      let watched = Watched()
      let store = try watched.create()
      watched.plan.fail(number: number, forever: true)
      try? Self.use(store, watched)
      watched.plan.clear()
      seed.isMultiple(of: 2) ? watched.host.killProcesses() : watched.host.losePower(seed: seed)
      let again = try watched.open()
      try again.put("topsecretkey after", secretContent(300))
      _ = try again.compact()
      try again.close()
      try watched.expectNothing("after call \(number)")
      number = number * 3 / 2
    }
  }

  @Test("contain nothing from before the encryption: staged, partial, received or quarantined")
  func leftovers() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: true)
    let plain = SimulatedHost(storage: host.storage, compacting: .onRequest, encrypted: false)
    let store = try Store.create(on: plain, configuration: Self.configuration)
    // No large value is live: only remains.
    let lost = try store.blobs.writer()
    try lost.append(Self.large)
    plain.killProcesses()
    for name in ["staging", "blobs/quarantine"] { _ = try host.storage.createDirectory("/store/" + name) }
    for name in ["staging/7-1", "blobs/quarantine/x", "journal/torn-1-9"] {
      try host.storage.open("/store/" + name, .create).write(secretContent(60), at: 0)
    }
    let again = try Store.open(on: plain, configuration: Self.configuration)
    #expect(try host.storage.status("/store/staging") == nil)
    #expect(try host.storage.list("/store/blobs/partial").count == 1)
    #expect(try again.encrypt(with: SimulatedHost.passphrase).isComplete)
    try Self.expectNothing(in: host.storage.files(below: "/store"), "encrypted")
    withExtendedLifetime(lost) {}
  }

  @Test(
    "contain no part of a large value that was being stored when the store was encrypted",
    arguments: [false, true])
  func encryptedDuringPut(isShared: Bool) throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: true)
    let plain = SimulatedHost(storage: host.storage, compacting: .onRequest, encrypted: false)
    var configuration = Self.configuration
    configuration.mode = isShared ? .shared : .exclusive
    let store = try Store.create(on: plain, configuration: configuration)
    try store.put("topsecretkey") { writer in
      try writer.append(Self.large)
      #expect(try !host.storage.list("/store/blobs/partial").isEmpty)
      #expect(try store.encrypt(with: SimulatedHost.passphrase).isComplete)
      try Self.expectNothing(in: host.storage.files(below: "/store"), "half way")
      try writer.append(Self.large)
      try Self.expectNothing(in: host.storage.files(below: "/store"), "behind that")
    }
    #expect(try store.get("topsecretkey")?.bytes == Self.large + Self.large)
    try Self.expectNothing(in: host.storage.files(below: "/store"), "stored")
    #expect(try host.storage.list("/store/blobs/partial").isEmpty)
  }
}

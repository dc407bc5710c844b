import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Re-keying a store")
struct RekeyTests {
  static let small = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
  let host = SimulatedHost(compacting: .onRequest, encrypted: true)
  static let another = Passphrase("another one")

  static func filled(_ host: SimulatedHost, writes: Int = 120) throws -> Store {
    let store = try Store.create(on: host, configuration: small)
    try CompactionTests.churn(store, writes: writes)
    return store
  }

  static func generations(_ store: Store) throws -> Set<UInt32> {
    try store.reading { engine throws(StoreError) in Set(engine.journal.segments.map(\.header.generation)) }
  }

  static func open(
    _ host: SimulatedHost, _ passphrase: Passphrase?, _ environment: Environment? = nil
  ) throws(StoreError) -> Store {
    var configuration = host.configured(small)
    configuration.passphrase = passphrase
    return try Store.open(
      at: "/store", configuration: configuration, environment: environment ?? host.environment)
  }

  @Test("with another passphrase changes the key file alone, and the old passphrase is useless")
  func passphrase() throws {
    let store = try Self.filled(host)
    let picture = try CompactionTests.Picture(store)
    let segments = try host.storage.files(below: "/store/journal")
    try store.changePassphrase(to: Self.another)
    #expect(try host.storage.files(below: "/store/journal") == segments)
    try store.put("after", "x")
    try store.delete("after")
    try store.close()
    #expect(
      #expect(throws: StoreError.self) { try Self.open(host, SimulatedHost.passphrase) }?.code == .wrongKey)
    let again = try Self.open(host, Self.another)
    #expect(try CompactionTests.Picture(again).values == picture.values)
    #expect(try again.verify().isClean)
  }

  @Test("with a new master key leaves no segment under the old one, and keeps every value and position")
  func masterKey() throws {
    let store = try Self.filled(host)
    let picture = try CompactionTests.Picture(store)
    let old = try #require(store.journalKeys.ring?.masters[1])
    let report = try store.renewKeys()
    #expect(report.isComplete && report.damaged == 0 && report.rewritten > 1)
    let generation = try #require(store.journalKeys.ring?.current)
    #expect(try Self.generations(store) == [generation])
    #expect(store.journalKeys.ring?.masters.count == 1)
    #expect(store.journalKeys.ring?.masters[generation]?.equals(old) == false)
    #expect(try CompactionTests.Picture(store) == picture)
    try store.close()
    let again = try Self.open(host, SimulatedHost.passphrase)
    #expect(try CompactionTests.Picture(again) == picture)
    #expect(!again.isRekeying)
    #expect(try again.verify().isClean)
    #expect(try again.renewKeys().isComplete)
    #expect(try CompactionTests.Picture(again) == picture)
  }

  @Test("first installs a copy that an interrupted compaction has renamed (F7)")
  func afterRenamedCopy() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Self.open(
      host, SimulatedHost.passphrase, host.environment(over: FaultingStorage(host.storage, plan: plan)))
    func put(_ numbers: [Int], _ value: String) throws {
      for number in numbers { try store.put(Key("\(number)"), value) }
    }
    // Ten fill a segment.
    for number in 0..<60 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 5900)) }
    plan.fail(.rename, on: "-3.segment", forever: true)
    #expect(throws: StoreError.self) { try store.renewKeys() }
    plan.clear()
    try put([10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25], "x")
    plan.fail(.open, on: "-3.segment", errno: EMFILE)
    #expect(throws: StoreError.self) { try store.compact() }
    #expect(try store.finishRekeying().damaged == 0)
    // By now the segments after those two are worth more.
    try put([26, 27, 28, 29, 30, 31, 32, 33, 34, 40, 41, 42, 43, 44], "y")
    plan.fail(.rename, number: 2, on: "-", forever: true)
    _ = try? store.compact()
    let picture = try CompactionTests.Picture(store)
    host.killProcesses()
    let again = try Self.open(host, SimulatedHost.passphrase)
    #expect(try CompactionTests.Picture(again) == picture && again.verify().isClean)
  }

  @Test("is not noticed by other processes on the store, even if the passphrase changes, too")
  func withOtherProcesses() throws {
    let store = try Self.filled(host)
    let other = try Self.open(host, SimulatedHost.passphrase, host.otherProcess)
    let reader = try Store.open(
      at: "/store", configuration: host.configured(Configuration(mode: .readOnly)),
      environment: host.environmentOf(process: 2_000))
    for round in 0..<3 {
      if round == 1 { try store.changePassphrase(to: Self.another) }
      let report = try store.renewKeys()
      // They may know only the old keys: those stay until these processes are gone.
      #expect(report.damaged == 0 && !report.isComplete)
      try other.put(Key("other \(round)"), "x")
      try CompactionTests.churn(other, writes: 30)
      try store.put(Key("own \(round)"), "x")
      #expect(try other.text(Key("own \(round)")) == "x")
      #expect(try reader.digest() == store.digest())
      #expect(try other.digest() == store.digest())
      #expect(try Self.generations(store).count == 1)
    }
    // It has the keys, but not the right to change them: it may not know the passphrase.
    #expect(#expect(throws: StoreError.self) { try other.renewKeys() }?.code == .wrongKey)
    #expect(
      #expect(throws: StoreError.self) { try other.changePassphrase(to: Self.another) }?.code == .wrongKey)
    try other.close()
    try reader.close()
    #expect(store.isRekeying)
    #expect(try store.finishRekeying().isComplete)
    #expect(store.journalKeys.ring?.masters.count == 1)
  }

  /// The ways to change the keys.
  enum Change: CaseIterable {
    case passphrase, master, encrypt, decrypt

    func run(_ store: Store) throws {
      switch self {
      case .passphrase: try store.changePassphrase(to: RekeyTests.another)
      case .master: try store.renewKeys()
      case .encrypt: try store.encrypt(with: RekeyTests.another)
      case .decrypt: try store.decrypt()
      }
    }

    var isSealedBefore: Bool { self != .encrypt }
    /// Passphrases of which the store may need one, wherever it was interrupted.
    var passphrases: [Passphrase?] {
      switch self {
      case .passphrase: [SimulatedHost.passphrase, RekeyTests.another]
      case .master: [SimulatedHost.passphrase]
      case .encrypt: [nil, RekeyTests.another]
      // With its passphrase it would be completed.
      case .decrypt: [nil, SimulatedHost.passphrase]
      }
    }
  }

  @Test(
    "interrupted at any call loses nothing, and the next one resumes it (F12)",
    arguments: Change.allCases)
  func interrupted(change: Change) throws {
    var number = 1
    while true {
      let host = SimulatedHost(
        seed: UInt64(number), compacting: .onRequest, encrypted: change.isSealedBefore)
      let store = try Self.filled(host, writes: 30)
      let before = try CompactionTests.Picture(store)
      try store.close()
      let plan = FaultPlan()
      let first = change.isSealedBefore ? SimulatedHost.passphrase : nil
      let dying = try Self.open(
        host, first, host.environment(over: FaultingStorage(host.storage, plan: plan)))
      let opening = plan.calls
      plan.fail(number: number, forever: true)
      let isDone = (try? change.run(dying)) != nil
      let isOver = plan.calls - opening < number
      if isOver { #expect(isDone) }
      if number % 2 == 0 { host.killProcesses() } else { host.losePower(seed: UInt64(number)) }
      let opened = change.passphrases.compactMap { try? Self.open(host, $0) }
      // Exactly one passphrase, or none, opens it: the old, or the new.
      #expect(opened.count == 1, "call \(number)")
      let again = try #require(opened.first)
      let after = try CompactionTests.Picture(again)
      #expect(after.values == before.values && after.digest == before.digest, "call \(number)")
      #expect(after.log.map(\.position) == before.log.map(\.position), "call \(number)")
      #expect(try again.verify().isClean, "call \(number)")
      try again.put("while it is half done", "x")
      #expect(try again.finishRekeying().isComplete, "call \(number)")
      #expect(!again.isRekeying)
      #expect(try Self.generations(again).count == 1, "call \(number)")
      try again.delete("while it is half done")
      #expect(try CompactionTests.Picture(again).values == before.values, "call \(number)")
      #expect(try again.verify().isClean, "call \(number)")
      if isOver { break }
      number = number < 30 ? EachCall.after(number) : EachCall.longAfter(number)
    }
    #expect(number > (change == .passphrase ? 10 : 60))
  }

  @Test("of a plaintext store leaves no plaintext")
  func encrypting() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<200 {
      try store.put(Key("topsecretkey \(number)"), "confidentialvalue \(number)".padded(to: 500))
    }
    host.losePower(seed: 1)
    let again = try Self.open(host, nil)
    try again.put("topsecretkey 1", "confidentialvalue")
    let report = try again.encrypt(with: Self.another)
    #expect(report.isComplete && again.isEncrypted && !again.isRekeying)
    for (path, bytes) in try EncryptedStoreTests.files(host) {
      #expect(!bytes.contains(Array("opsecretke".utf8)), "\(path)")
      #expect(!bytes.contains(Array("onfidentialval".utf8)), "\(path)")
    }
    #expect(try again.text("topsecretkey 1") == "confidentialvalue")
    #expect(
      #expect(throws: StoreError.self) { try again.encrypt(with: Self.another) }?.code == .alreadyExists)
    // A process that had opened it unencrypted is told what to do.
    let picture = try CompactionTests.Picture(again)
    try again.close()
    #expect(#expect(throws: StoreError.self) { try Self.open(host, nil) }?.code == .keyRequired)
    #expect(try CompactionTests.Picture(try Self.open(host, Self.another)) == picture)
  }

  @Test("of a store that another process has open in plaintext gives that process a typed error")
  func encryptingWithOtherProcesses() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let store = try Self.filled(host)
    let other = try Self.open(host, nil, host.otherProcess)
    let values = try CompactionTests.Picture(store).values
    #expect(try !store.encrypt(with: Self.another).isComplete)
    #expect(#expect(throws: StoreError.self) { try other.put("a", "1") }?.code == .keyRequired)
    #expect(#expect(throws: StoreError.self) { try other.get("a") }?.code == .keyRequired)
    try? other.close()
    let again = try Self.open(host, Self.another, host.otherProcess)
    try again.put("a", "1")
    #expect(try store.text("a") == "1")
    try again.delete("a")
    #expect(try CompactionTests.Picture(store).values == values)
  }

  @Test("to plaintext removes the key file at the end, with other processes on the store")
  func decrypting() throws {
    let store = try Self.filled(host)
    let other = try Self.open(host, SimulatedHost.passphrase, host.otherProcess)
    let picture = try CompactionTests.Picture(store)
    #expect(try !store.decrypt().isComplete)
    try other.put("a", "1")
    #expect(try store.text("a") == "1")
    try store.delete("a")
    #expect(try Self.generations(store) == [0])
    try other.close()
    try store.close()
    // An exclusive opening has only this left to do.
    let last = try Self.open(host, SimulatedHost.passphrase)
    #expect(!last.isEncrypted)
    #expect(try host.storage.status("/store/keys/ring") == nil)
    try last.close()
    #expect(try CompactionTests.Picture(try Self.open(host, nil)).values == picture.values)
    let plain = try Self.open(host, nil)
    #expect(
      #expect(throws: StoreError.self) { try plain.changePassphrase(to: Self.another) }?.code
        == .notEncrypted)
    // Former keys are never taken for future ones.
    #expect(try plain.encrypt(with: Self.another).isComplete)
    #expect(try #require(plain.journalKeys.ring?.current) > 1)
  }

  @Test("keeps the key of a damaged segment, and continues with the others (F12, F17)")
  func damaged() throws {
    let store = try Self.filled(host)
    let values = try CompactionTests.Picture(store).values
    try store.close()
    let path = "/store/journal/0000000000000001.segment"
    try host.storage.flipBit(of: path, at: 20_000, bit: 3)
    host.killProcesses()
    let again = try Self.open(host, SimulatedHost.passphrase)
    let report = try again.renewKeys()
    #expect(report.damaged == 1 && !report.isComplete && report.rewritten > 0)
    #expect(again.isRekeying)
    #expect(try Self.generations(again).count == 2)
    try again.close()
    let later = try Self.open(host, SimulatedHost.passphrase)
    var lost = 0
    for (key, value) in values {
      do throws(StoreError) { #expect(try later.get(Key(key))?.bytes == value) } catch { lost += 1 }
    }
    #expect(lost <= 1)
  }
}

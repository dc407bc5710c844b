import SyncTestSupport
import Testing

@testable import SyncStore

/// Which file a backup extends, who may restore it, and to where.
@Suite("Rules of backups")
struct BackupRulesTests {
  static let file = BackupTests.file
  let host = SimulatedHost(encrypted: false)

  @Test("a backup of another store, of a copy, or from before a rollback is not overwritten without consent")
  func strangers() throws {
    let store = try Store.create(on: host)
    try store.put("k", "1")
    _ = try store.backUp(to: Self.file)
    let before = try host.storage.open(Self.file, .readOnly).read(1 << 20, at: 0)
    let other = try Store.create("/other", on: host)
    #expect(#expect(throws: StoreError.self) { try other.backUp(to: Self.file) }?.code == .foreignFile)
    #expect(
      #expect(throws: StoreError.self) { try other.backUp(to: Self.file, replacing: true) }?.code
        == .foreignFile)
    // A member that holds nothing yet must not replace the backup of one that holds everything.
    let member = try Store.create("/member", on: host, id: store.id)
    #expect(#expect(throws: StoreError.self) { try member.backUp(to: Self.file) }?.code == .alreadyExists)
    _ = try BackupTests.restore(host)
    let restored = try Store.open("/restored", on: host)
    #expect(#expect(throws: StoreError.self) { try restored.backUp(to: Self.file) }?.code == .alreadyExists)
    #expect(try host.storage.open(Self.file, .readOnly).read(1 << 20, at: 0) == before)
    #expect(try restored.backUp(to: Self.file, replacing: true).isFull)
    #expect(try restored.backUp(to: Self.file).isFull == false)
    #expect(#expect(throws: StoreError.self) { try store.backUp(to: Self.file) }?.code == .alreadyExists)
    let text = try host.storage.open("/text", .create)
    try text.write(Array("no backup".utf8), at: 0)
    for replacing in [false, true] {
      #expect(
        #expect(throws: StoreError.self) { try store.backUp(to: "/text", replacing: replacing) }?.code
          == .foreignFile)
    }
  }

  @Test("two concurrent backups into one file do not mix")
  func twoAtOnce() throws {
    let store = try Store.create(on: host)
    try store.put("k", "1")
    _ = try store.backUp(to: Self.file)
    let held = try host.storage.open(Self.file, .readWrite)
    _ = try held.lock(byte: 0, .exclusive, wait: false)
    #expect(#expect(throws: StoreError.self) { try store.backUp(to: Self.file) }?.code == .busy)
    _ = try held.lock(byte: 0, .none, wait: false)
    #expect(try store.backUp(to: Self.file).section == 2)
    // Replaced between the open and the lock: the lock on the old file would not exclude writers of the new
    // one.
    let plan = FaultPlan()
    try store.close()
    let again = try Store.open(on: host, failing: plan)
    plan.before(.lock, of: Self.file) { [host] in
      try? host.storage.rename(Self.file, to: Self.file + ".old")
      let bytes = try? host.storage.open(Self.file + ".old", .readOnly).read(1 << 20, at: 0)
      try? host.storage.open(Self.file, .create).write(bytes ?? [], at: 0)
    }
    #expect(#expect(throws: StoreError.self) { try again.backUp(to: Self.file) }?.code == .busy)
    #expect(try again.backUp(to: Self.file).section == 3)
  }

  @Test("a restore refuses a directory that is in use, or holds something else (F95)")
  func targets() throws {
    let store = try Store.create(on: host)
    try store.put("k", "1")
    _ = try store.backUp(to: Self.file)
    try store.put("k", "2")
    #expect(
      #expect(throws: StoreError.self) { try BackupTests.restore(host, to: "/store") }?.code == .alreadyExists
    )
    #expect(
      #expect(throws: StoreError.self) { try BackupTests.restore(host, to: "/store", replacing: true) }?.code
        == .busy)
    #expect(try store.text("k") == "2")
    try store.close()
    _ = try host.storage.createDirectory("/empty")
    _ = try BackupTests.restore(host, to: "/empty")
    #expect(try Store.open("/empty", on: host).text("k") == "1")
    _ = try host.storage.open("/store/letter", .create)
    #expect(
      #expect(throws: StoreError.self) { try BackupTests.restore(host, to: "/store", replacing: true) }?.code
        == .foreignFile)
    _ = try host.storage.remove("/store/letter")
    _ = try BackupTests.restore(host, to: "/store", replacing: true)
    #expect(try Store.open(on: host).text("k") == "1")
    #expect(try host.storage.list("/").contains("store.restoring") == false)
  }

  @Test(
    "a restore to a new path does not replace anything created there meanwhile",
    arguments: [false, true])
  func targetTaken(wasEmpty: Bool) throws {
    let store = try Store.create(on: host)
    try store.put("k", "1")
    _ = try store.backUp(to: Self.file)
    if wasEmpty { _ = try host.storage.createDirectory("/place") }
    let plan = FaultPlan()
    let others = Locked<[Store]>([])
    plan.before(.rename, of: "/place") { [host] in
      let other = try? Store.create("/place", on: host)
      try? other?.put("k", "theirs")
      others.withLock { $0 = other.map { [$0] } ?? [] }
    }
    let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    #expect(
      #expect(throws: StoreError.self) {
        try Store.restore(
          from: Self.file, to: "/place", state: nil, replacing: false, environment: environment)
      }?.code == .alreadyExists)
    let other = try #require(others.withLock { $0.first })
    #expect(try other.text("k") == "theirs" && other.verify().isClean)
    #expect(try !host.storage.list("/").contains("place.restoring"))
  }

  @Test("an encrypted store stays encrypted in its backup, is restored without its key, and needs it to open")
  func staysEncrypted() throws {
    let host = SimulatedHost(encrypted: true)
    let store = try Store.create(on: host)
    try store.writeKeyFile("device.pem", Array("private words".utf8))
    for number in 0..<50 { try store.put(Key("hushed key \(number)"), "hushed value \(number)") }
    _ = try store.backUp(to: Self.file)
    try store.put("hushed key 50", "hushed value 50")
    #expect(try store.backUp(to: Self.file).isFull == false)
    let bytes = try host.storage.open(Self.file, .readOnly).read(1 << 20, at: 0)
    let text = String(decoding: bytes, as: UTF8.self)
    #expect(!text.contains("hushed") && !text.contains("private"))
    try store.close()
    _ = try BackupTests.restore(host)
    var wrong = host.configured()
    wrong.passphrase = Passphrase("not this")
    #expect(
      #expect(throws: StoreError.self) {
        try Store.open(at: "/restored", configuration: wrong, environment: host.environment)
      }?.code == .wrongKey)
    let copy = try Store.open("/restored", on: host)
    for number in 0...50 { #expect(try copy.text(Key("hushed key \(number)")) == "hushed value \(number)") }
    #expect(try copy.readKeyFile("device.pem", limit: 100) == Array("private words".utf8))
    #expect(try copy.verify().isClean)
  }

  @Test("after a rekey, nothing that the old keys decrypt stays in the file")
  func rekeyed() throws {
    let host = SimulatedHost(encrypted: true)
    let store = try Store.create(on: host)
    for number in 0..<50 { try store.put(Key("\(number)"), "\(number)") }
    _ = try store.backUp(to: Self.file)
    for change in 0..<2 {
      if change == 0 {
        try store.changePassphrase(to: Passphrase("another"))
      } else {
        #expect(try store.renewKeys().isComplete)
      }
      try store.put("after", "\(change)")
      let report = try store.backUp(to: Self.file)
      #expect(report.isFull && report.section == 1)
      #expect(try store.backUp(to: Self.file).isFull == false)
      let path = "/restored\(change)"
      _ = try BackupTests.restore(host, to: path)
      #expect(#expect(throws: StoreError.self) { try Store.open(path, on: host) }?.code == .wrongKey)
      var configuration = host.configured()
      configuration.passphrase = Passphrase("another")
      let copy = try Store.open(at: path, configuration: configuration, environment: host.environment)
      #expect(try copy.text("after") == "\(change)" && copy.status().keys == 51)
    }
  }

  @Test(
    "a restored copy knows what it had received, gets only what came since, and shows no peer an old mark"
  )
  func coverage() throws {
    let sender = try Store.create("/sender", on: host)
    let store = try Store.create(on: host, id: sender.id)
    for number in 0..<30 { try sender.put(Key("\(number)"), "\(number)") }
    try store.receive(from: sender)
    _ = try store.backUp(to: Self.file)
    try sender.put("more", "x")
    try store.receive(from: sender)
    _ = try store.backUp(to: Self.file)
    _ = try BackupTests.restore(host, state: 1)
    let copy = try Store.open("/restored", on: host)
    #expect(try copy.cursor(for: sender.actor) == nil)
    let round = try sender.openRound(
      since: nil, covered: copy.versionVector())
    #expect(round.count == 1)
    try copy.receive(from: sender)
    #expect(try copy.digest() == sender.digest())
  }

  @Test("invitations and damage marks are not restored from a backup")
  func leftOut() throws {
    let store = try Store.create(on: host)
    try store.setLocal(Array("invite/1".utf8), [1])
    try store.setLocal(Array("peer/there".utf8), [2])
    try store.setLocal(Array("peer/gone".utf8), [3])
    _ = try store.backUp(to: Self.file)
    try store.setLocal(Array("peer/gone".utf8), nil)
    _ = try store.backUp(to: Self.file)
    _ = try BackupTests.restore(host)
    let copy = try Store.open("/restored", on: host)
    let keys = try copy.locals(prefix: []).map { String(decoding: $0.key.prefix(11), as: UTF8.self) }
    #expect(keys.filter { $0.hasPrefix("invite/") || $0.hasPrefix("peer/") } == ["peer/there"])
    #expect(keys.filter { $0.hasPrefix("backup/") || $0.hasPrefix("mark/") } == [])
  }

  @Test("a copy continues the last of many backup files, and forgets the oldest")
  func manyFiles() throws {
    let store = try Store.create(on: host)
    for number in 0..<70 {
      try store.put("k", "\(number)")
      _ = try store.backUp(to: "/file\(number)")
    }
    #expect(try store.locals(prefix: StateKey.backupPrefix).count == 64)
    #expect(try store.backUp(to: "/file69").section == 2)
    #expect(try store.backUp(to: "/file10").section == 2)
    #expect(#expect(throws: StoreError.self) { try store.backUp(to: "/file0") }?.code == .alreadyExists)
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("The index of an encrypted store")
struct EncryptedIndexTests {
  let host = SimulatedHost(compacting: .onRequest, encrypted: true)

  static func bytes(_ host: SimulatedHost, _ name: String) throws -> [UInt8] {
    try #require(try host.storage.files(below: "/store")["/store/" + name])
  }

  static func littleEndian(_ number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> UInt64(8 * $0)) }
  }

  /// The header of the index on disk.
  static func header(_ host: SimulatedHost) throws -> IndexHeader {
    let bytes = try bytes(host, "index")
    return try IndexHeader(Array(bytes[..<IndexLayout.Header.fixedLength]), path: "index")
  }

  static func random(_ store: Store) -> [UInt8] { store.core.engine.withLock { $0.index.hashIndex.secret } }

  @Test("is keyed by a secret that is not on the disk, and reveals nothing about guessable values")
  func noPlaintext() throws {
    let store = try Store.create(on: host)
    try store.put("a guess", "yes")
    let digest = try store.digest()
    try store.put("another", "no")
    let after = try store.digest()
    let seed = store.core.engine.withLock { $0.index.hashIndex.seed }
    try store.close()
    #expect(try Self.header(host).check?.count == IndexKeys.checkBytes)
    let ledger = try Self.bytes(host, "ledger")
    #expect(ledger[112..<136].contains { $0 != 0 }, "the digest is kept")
    for (name, bytes) in try host.storage.files(below: "/store") {
      for secret in [seed, digest.high, digest.low, after.high, after.low] {
        #expect(!bytes.contains(Self.littleEndian(secret)), "\(name)")
      }
    }
  }

  @Test("is resumed when the store is opened again, with its running digest")
  func resumed() throws {
    let store = try Store.create(on: host)
    for number in 0..<100 { try store.put(Key("\(number)"), "value \(number)") }
    _ = try store.digest()
    try store.put("7", "another")
    let digest = try store.digest()
    let random = Self.random(store)
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(Self.random(again) == random)
    let kept = again.core.engine.withLock { $0.index.checkpoint.digest(at: $0.applied.packed) }
    #expect(kept == digest)
    #expect(try again.text("7") == "another")
    try again.delete("8")
    try again.close()
    // Everything computed from all keys is equal.
    let last = try Store.open(on: host)
    let running = try last.digest()
    try last.close()
    try OpeningTests.removeIndex(of: host)
    #expect(try Store.open(on: host).digest() == running)
  }

  @Test("is not trusted with another secret, or none")
  func anotherSecret() throws {
    let store = try Store.create(on: host)
    try store.close()
    let boot = try Self.header(host).boot
    let right = try #require(store.journalKeys.indexSecret)
    for (secret, isRight) in [(right, true), ([UInt8](repeating: 1, count: 16), false), (nil, false)] {
      let opening = try HashIndex.open(
        at: "/store/index", host.storage, store: store.id, boot: boot, storeSecret: secret, writable: true)
      #expect((opening.trusted != nil) == isRight)
    }
  }

  @Test(
    "replaces the plaintext one when the store is encrypted, and is replaced when it is decrypted"
  )
  func encryptedAndDecrypted() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let store = try RekeyTests.filled(host)
    let picture = try CompactionTests.Picture(store)
    let clear = Self.random(store)
    #expect(try Self.header(host).check == nil)
    #expect(try store.encrypt(with: RekeyTests.another).isComplete)
    #expect(try Self.header(host).check != nil)
    #expect(try !Self.bytes(host, "index").contains(Array(clear[..<8])))
    #expect(try CompactionTests.Picture(store) == picture)
    let sealed = Self.random(store)
    try store.close()
    let again = try RekeyTests.open(host, RekeyTests.another)
    #expect(Self.random(again) == sealed)
    #expect(try again.decrypt().isComplete)
    #expect(try Self.header(host).check == nil)
    let plain = Self.random(again)
    #expect(try CompactionTests.Picture(again) == picture)
    try again.close()
    let last = try RekeyTests.open(host, nil)
    #expect(Self.random(last) == plain)
    #expect(try CompactionTests.Picture(last) == picture)
    #expect(try last.verify().isClean)
  }

  @Test("stays common to all processes, also those that open the store during its decryption")
  func withOtherProcesses() throws {
    let store = try RekeyTests.filled(host)
    let other = try RekeyTests.open(host, SimulatedHost.passphrase, host.otherProcess)
    #expect(try !store.decrypt().isComplete)
    let third = try RekeyTests.open(host, SimulatedHost.passphrase, host.environmentOf(process: 3_000))
    let stores = [store, other, third]
    for one in stores { #expect(one.core.engine.withLock { $0.index.isShared }) }
    for number in 0..<30 {
      try stores[number % 3].put(Key("later \(number)"), "\(number)")
      for reader in stores { #expect(try reader.text(Key("later \(number)")) == "\(number)") }
    }
  }

  @Test("allows lookups without the lock, with the record decrypted")
  func lockFree() throws {
    let store = try Store.create(
      on: host, configuration: Configuration(blobThreshold: Limits.inlineValueBytes))
    try store.put("a", "1")
    try store.put("b", [UInt8](repeating: 7, count: 100_000))
    try store.put("c", "gone")
    try store.delete("c")
    for (name, value) in [("a", "1".utf8.map { $0 }), ("b", [UInt8](repeating: 7, count: 100_000))] {
      let key = try Key(name)
      let found = store.readers.read { view -> [UInt8]? in
        guard view.isEncrypted else { return nil }
        var opened: Mapping?
        guard case .record(let record) = view.find(key.bytes.span, opened: &opened) else { return nil }
        return withExtendedLifetime(opened) { record.valueBytes }
      }
      #expect(found == value)
      #expect(try store.withValue(key) { $0.byteCount } == value.count)
      // While one value is in use, the same thread reads more others than it caches.
      let isSame = try store.withValue(key) { bytes in
        for number in 0..<20 { try store.put(Key("more \(number)"), "x") }
        for number in 0..<20 { #expect(try store.text(Key("more \(number)")) == "x") }
        return [UInt8](copying: bytes) == value
      }
      #expect(isSame == true)
    }
    #expect(try store.get("c") == nil)
    #expect(try store.get("d") == nil)
    // A record that looks unencrypted is rejected.
    let isUnknown = store.readers.read { view -> Bool? in
      if case .unknown = view.find(Array("a".utf8).span) { true } else { false }
    }
    #expect(isUnknown == true)
  }

  @Test(
    "sorts keys like a plaintext store, whatever the order of writes, the sizes and the optional fields")
  func sorted() throws {
    let plain = try Store.create(on: SimulatedHost(encrypted: false), configuration: ScanTests.small)
    let store = try Store.create(on: host, configuration: ScanTests.small)
    for copy in [store, plain] {
      var random = SplitMix64(seed: 5)
      for number in 0..<1500 {
        let prefix = ["", "a", "a long prefix that many share ", "\u{1}"].randomElement(using: &random) ?? ""
        let key = try Key(prefix + "\(Int.random(in: 0..<900, using: &random))")
        let size = number % 100 == 0 ? 20_000 : Int.random(in: 0..<50, using: &random)
        try copy.put(
          key, [UInt8](repeating: UInt8(number % 251), count: size),
          expiration: number % 7 == 0 ? .at(1_800_000_000_000) : nil)
        if number % 50 == 0 { try copy.delete(key) }
        if number == 1000 { _ = try copy.scanned() }
      }
    }
    let expected = try plain.scanned()
    let found = try store.scanned()
    #expect(found.map(\.key) == expected.map(\.key))
    #expect(found.map(\.value) == expected.map(\.value))
    let snapshot = try store.snapshot()
    for entry in expected.prefix(100) {
      #expect(try snapshot.get(Key(bytes: entry.key))?.bytes == entry.value)
    }
    #expect(try snapshot.get("a long prefix that nobody has") == nil)
  }

  @Test(
    "with a key damaged while the store is open never omits it from a scan silently (F37)",
    arguments: [0, 12, 40, 60])
  func damaged(offset: Int) throws {
    for number in [0, 150, 299] {
      let host = SimulatedHost(encrypted: true)
      let store = try Store.create(on: host)
      for number in 0..<300 { try store.put(Key("key \(number + 1000)"), "value \(number)") }
      let before = try store.snapshot()
      let key = try Key("key \(number + 1000)")
      let place = try #require(
        try store.reading { engine throws(StoreError) in engine.find(key.bytes) })
      try host.storage.flipBit(of: DamageInUseTests.path, at: place.offset + offset, bit: 3)
      for view in [before, try store.snapshot()] {
        #expect(#expect(throws: StoreError.self) { try view.get(key) }?.code == .damaged)
        for other in stride(from: 0, to: 300, by: 7) where other != number {
          do {
            #expect(try view.get(Key("key \(other + 1000)"))?.bytes == Array("value \(other)".utf8))
          } catch {
            #expect(error.code == .damaged)
          }
        }
      }
      #expect(#expect(throws: StoreError.self) { try store.scanned() }?.code == .damaged)
    }
  }
}

/// Key epochs whose definition is missing from the file.
@Suite("A key epoch that was not written")
struct UnwrittenEpochTests {
  @Test("is defined anew, and another process's definition in its place is read (F26)")
  func definedAnew() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: true)
    host.storage.type = PwriteTailTests.btrfs
    let shared = SharedModeTests.shared
    let plan = FaultPlan()
    let first = try Store.create(on: host, configuration: shared)
    var environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    environment.process += 1_000
    let second = try Store.open(
      at: "/store", configuration: host.configured(shared), environment: environment)
    plan.fail(.write, on: "1.segment", errno: 28)
    #expect(#expect(throws: StoreError.self) { try second.put("k", "lost") }?.code == .diskFull)
    let third = try Store.open(
      at: "/store", configuration: host.configured(shared), environment: host.environmentOf(process: 3_000))
    try third.put("third", "3")
    #expect(try second.text("third") == "3")
    try second.put("second", "2")
    try first.put("first", "1")
    for store in [first, second, third] {
      #expect(try ["first", "second", "third"].map { try store.text($0) } == ["1", "2", "3"])
    }
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try ["first", "second", "third"].map { try again.text($0) } == ["1", "2", "3"])
    #expect(try again.verify().isClean)
  }
}

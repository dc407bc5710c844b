import SyncTestSupport
import Testing

@testable import SyncStore

/// Encryption at rest, seen from the store.
@Suite("An encrypted store")
struct EncryptedStoreTests {
  static let shared = Configuration(mode: .shared, durability: .relaxed)
  let host = SimulatedHost(encrypted: true)

  static func files(_ host: SimulatedHost) throws -> [String: [UInt8]] {
    try host.storage.files(below: "/store").filter { !$0.key.hasSuffix("/control") }
  }

  static func with(_ passphrase: Passphrase?, _ base: Configuration = Configuration()) -> Configuration {
    var configuration = base
    configuration.passphrase = passphrase
    return configuration
  }

  @Test("round-trips values, in the same process and in the next")
  func roundTrip() throws {
    let store = try Store.create(on: host)
    let large = [UInt8](repeating: 7, count: 18_000)
    try store.put("small", "value")
    try store.put("large", large)
    try store.put("empty", [])
    try store.put("gone", "x")
    try store.put("timed", Array("soon".utf8), expiration: .at(host.time + 1000))
    try store.delete("gone")
    try store.setLocal(Array("local".utf8), [1, 2, 3])
    func check(_ store: Store) throws {
      #expect(try store.text("small") == "value")
      #expect(try store.get("large")?.bytes == large)
      #expect(try store.get("empty")?.bytes == [])
      #expect(try store.get("gone") == nil)
      #expect(try store.get("timed")?.deadline == host.time + 1000)
      #expect(try store.withValue("small") { $0.byteCount } == 5)
      #expect(try store.list().map(\.key) == ["empty", "large", "small", "timed"])
      #expect(try store.local(Array("local".utf8)) == [1, 2, 3])
      #expect(try store.verify().isClean)
    }
    try check(store)
    let digest = try store.digest()
    try store.close()
    let again = try Store.open(on: host)
    try check(again)
    #expect(try again.digest() == digest)
  }

  @Test("has no byte of a key or a value as plaintext in its directory")
  func noPlaintext() throws {
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 64 << 10))
    for number in 0..<300 {
      try store.put(Key("topsecretkey \(number % 40)"), "confidentialvalue \(number)".padded(to: 400))
    }
    try store.setLocal(Array("topsecretkey local".utf8), Array("confidentialvalue".utf8))
    host.storage.failSync(of: "/store/journal/0000000000000001.segment")
    try store.compact()
    host.losePower(seed: 3)
    let again = try Store.open(on: host)
    try again.put("topsecretkey later", "confidentialvalue later")
    try again.close()
    let files = try Self.files(host)
    #expect(files.keys.contains { $0.contains("-") })
    let actor = try Store.open(on: host).actor.bytes
    for (path, bytes) in files {
      for word in ["topsecretkey", "onfidentialval", "replica/"] {
        #expect(!bytes.contains(Array(word.utf8)), "\(path) holds \(word)")
      }
      #expect(!bytes.contains(actor), "\(path) names the actor")
    }
  }

  @Test("is not opened, and not changed, with a wrong passphrase")
  func wrongKey() throws {
    let store = try Store.create(on: host, configuration: Self.shared)
    try store.put("a", "1")
    try store.close()
    let before = try host.storage.files(below: "/store")
    for mode in [Configuration.Mode.exclusive, .shared, .readOnly] {
      let wrong = Self.with(Passphrase("wrong"), Configuration(mode: mode))
      #expect(
        #expect(throws: StoreError.self) {
          try Store.open(at: "/store", configuration: wrong, environment: host.environment)
        }?.code == .wrongKey)
      let none = Configuration(mode: mode)
      #expect(
        #expect(throws: StoreError.self) {
          try Store.open(at: "/store", configuration: none, environment: host.environment)
        }?.code == .keyRequired)
    }
    #expect(try host.storage.files(below: "/store") == before)
    let open = try Store.open(on: host, configuration: Self.shared)
    // Nor does another opening in the same process get the open instance.
    #expect(
      #expect(throws: StoreError.self) {
        try Store.open(
          at: "/store", configuration: Self.with(Passphrase("wrong"), Self.shared),
          environment: host.environment)
      }?.code == .wrongKey)
    #expect(try open.text("a") == "1")
  }

  @Test("is distinguished from a plaintext one, for which a passphrase is an error")
  func plain() throws {
    let host = SimulatedHost(encrypted: false)
    try Store.create(on: host).close()
    let error = #expect(throws: StoreError.self) {
      try Store.open(on: host, configuration: Configuration(passphrase: Passphrase("x")))
    }
    #expect(error?.code == .notEncrypted)
    for passphrase in [Passphrase(""), Passphrase([UInt8](repeating: 1, count: 1025))] {
      let error = #expect(throws: StoreError.self) {
        try Store.create("/other", on: host, configuration: Configuration(passphrase: passphrase))
      }
      #expect(error?.code == .outOfBounds)
    }
  }

  @Test("with a missing or foreign key file reports that and is not taken for a plaintext one")
  func keyFile() throws {
    try Store.create(on: host).close()
    try Store.create("/other", on: host).close()
    let ring = try #require(try host.storage.contents(of: "/store/keys/ring", limit: 1 << 20))
    _ = try host.storage.remove("/store/keys/ring")
    #expect(
      #expect(throws: StoreError.self) {
        try Store.open(at: "/store", configuration: Configuration(), environment: host.environment)
      }?.code == .damaged)
    #expect(#expect(throws: StoreError.self) { try Store.open(on: host) }?.code == .notEncrypted)
    let other = try #require(try host.storage.contents(of: "/other/keys/ring", limit: 1 << 20))
    try host.storage.replace("/store/keys/ring", with: other)
    #expect(#expect(throws: StoreError.self) { try Store.open(on: host) }?.code == .foreignFile)
    try host.storage.replace("/store/keys/ring", with: ring)
    try Store.open(on: host).close()
  }

  @Test("rejects segments that are not encrypted, whatever their origin (F40)")
  func foreignSegment() throws {
    try Store.create(on: host).close()
    let plain = SimulatedHost(storage: host.storage, encrypted: false)
    let id = try Store.open(on: host).id
    try Store.create("/plain", on: plain, id: id).close()
    let name = "/journal/0000000000000001.segment"
    let bytes = try #require(try host.storage.contents(of: "/plain" + name, limit: 1 << 30))
    host.killProcesses()
    try host.storage.replace("/store" + name, with: bytes)
    #expect(#expect(throws: StoreError.self) { try Store.open(on: host) }?.code == .foreignFile)
  }

  @Test("is used by several processes at once, each encrypting under its own key")
  func processes() throws {
    let first = try Store.create(on: host, configuration: Self.shared)
    let second = try Store.openSecond(on: host, configuration: Self.shared)
    for number in 0..<20 {
      try (number % 2 == 0 ? first : second).put(Key("\(number)"), "\(number)")
      #expect(try first.text(Key("\(number)")) == "\(number)")
      #expect(try second.text(Key("\(number)")) == "\(number)")
    }
    let reader = try Store.open(
      at: "/store", configuration: host.configured(Configuration(mode: .readOnly)),
      environment: host.environmentOf(process: 2_000))
    #expect(try reader.list().count == 20)
    #expect(try reader.digest() == first.digest())
    let places = try first.reading { engine throws(StoreError) in Self.epochs(in: engine.journal) }
    // The creation had one, too.
    #expect(places.count == 3)
  }

  @Test("with a key damaged while it is open gives an error for that key, and never another value (F37)")
  func damageInUse() throws {
    let store = try Store.create(on: host)
    try store.put("the key", "older")
    try store.put("the key", "value")
    try store.put("other", "value")
    let place = try #require(
      try store.reading { engine throws(StoreError) in engine.find(Array("the key".utf8)) })
    let path = "/store/journal/0000000000000001.segment"
    var noticed = 0
    for offset in 0..<(RecordLayout.fixedLength + 12 + EncryptedRecordLayout.overhead) {
      for bit in 0..<8 {
        try host.storage.flipBit(of: path, at: place.offset + offset, bit: bit)
        do throws(StoreError) {
          #expect(try store.text("the key") == "value", "byte \(offset), bit \(bit)")
        } catch {
          #expect(error.code == .damaged, "byte \(offset), bit \(bit): \(error)")
          noticed += 1
        }
        #expect(try store.text("other") == "value")
        try host.storage.flipBit(of: path, at: place.offset + offset, bit: bit)
      }
    }
    #expect(noticed == 8 * (RecordLayout.fixedLength + 12 + EncryptedRecordLayout.overhead))
    #expect(try store.text("the key") == "value")
  }

  @Test("with one damaged byte loses that record alone, and knows its actor (F37)")
  func attribution() throws {
    let store = try Store.create(on: host)
    for number in 0..<10 { try store.put(Key("key \(number)"), "value \(number)") }
    let place = try #require(
      try store.reading { engine throws(StoreError) in engine.find(Array("key 4".utf8)) })
    try store.close()
    try host.storage.flipBit(of: "/store/journal/0000000000000001.segment", at: place.offset + 60, bit: 2)
    host.killProcesses()
    let again = try Store.open(on: host)
    for number in 0..<10 {
      let key = try Key("key \(number)")
      if number == 4 {
        #expect(#expect(throws: StoreError.self) { try again.get(key) }?.code == .damaged)
      } else {
        #expect(try again.text(key) == "value \(number)")
      }
    }
  }

  /// All records ever encrypted, by the inputs of their nonces and keys.
  struct Sealings {
    private var seen: [[UInt8]: [UInt8]] = [:]
    private(set) var count = 0

    /// Adds all records of the segments below a directory.
    mutating func collect(_ files: [String: [UInt8]]) {
      for (path, bytes) in files where path.hasSuffix(".segment") || path.contains("/aside-") {
        guard case .whole(let header, _) = SegmentHeader.read(bytes), header.generation > 0 else { continue }
        func number(_ offset: Int) -> Int {
          (0..<4).reversed().reduce(0) { $0 << 8 | Int(bytes[offset + $1]) }
        }
        var offset = SegmentHeader.length
        while offset + EncryptedRecordLayout.least <= bytes.count {
          let length = number(offset + RecordLayout.length)
          guard length >= EncryptedRecordLayout.least, offset + length <= bytes.count else { break }
          let sum = XXH3.hash64(
            bytes.span.extracting((offset + RecordLayout.length)..<(offset + length)),
            seed: header.salt &+ UInt64(offset))
          // Bytes torn by the power loss were not encrypted like this.
          guard UInt32(truncatingIfNeeded: sum) == UInt32(number(offset)) else { break }
          let isDefinition = bytes[offset + RecordLayout.kind] == RecordLayout.Kind.epoch.rawValue
          let tweak =
            offset + RecordLayout.fixedLength + (isDefinition ? EncryptedRecordLayout.epochBytes : 0)
          let epoch = number(offset + EncryptedRecordLayout.epoch) + RecordLayout.fixedLength
          let name =
            Array("\(header.number) \(header.salt) \(offset) ".utf8)
            + bytes[epoch..<(epoch + EncryptedRecordLayout.epochBytes)]
          let sealed = Array(bytes[tweak..<(offset + length)])
          // The identical record may exist twice, in a copy of the directory. Even without the tweak no
          // location and epoch occur twice.
          #expect(seen[name] ?? sealed == sealed, "\(path), offset \(offset)")
          seen[name] = sealed
          count = seen.count
          offset += RecordLayout.aligned(length)
        }
      }
    }
  }

  @Test(
    "never reuses a nonce, across kills, copies, rollbacks, truncation, compaction (F55, F56, F57, F58)",
    arguments: 0..<12 as Range<UInt64>)
  func nonces(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed, compacting: .onRequest, encrypted: true)
    let configuration = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
    var random = SplitMix64(seed: seed)
    var sealings = Sealings()
    var paths = ["/store"]
    try Store.create(on: host, configuration: configuration).close()
    for round in 0..<30 {
      let path = paths[Int(random.next() % UInt64(paths.count))]
      let store = try Store.open(path, on: host, configuration: configuration)
      try CompactionTests.churn(store, keys: 5, writes: Int(random.next() % 12), seed: random.next())
      switch random.next() % 6 {
      case 0: try store.compact()
      case 1: try store.renewKeys()
      case 2: try store.sync()
      default: break
      }
      sealings.collect(try host.storage.files(below: path))
      switch random.next() % 4 {
      case 0: host.killProcesses()
      case 1: host.losePower(seed: random.next())
      case 2:
        try store.close()
        if paths.count < 4 {
          try host.storage.copyTree(from: path, to: "/copy \(round)")
          paths.append("/copy \(round)")
        }
      default: try store.close()
      }
      sealings.collect(try host.storage.files(below: path))
    }
    #expect(sealings.count > 50, "seed \(seed)")
  }

  /// The key epochs named by the journal.
  static func epochs(in journal: Journal) -> Set<[UInt8]> {
    var epochs: Set<[UInt8]> = []
    for segment in journal.segments {
      var walker = ResyncingRecordIterator(segment, limit: segment.mapping.count)
      while let step = walker.next() {
        guard case .record(let view) = step, view.kind == .epoch else { continue }
        epochs.insert(segment.mapping.bytes((view.offset + 40)..<(view.offset + 72)))
      }
    }
    return epochs
  }
}

extension String {
  func padded(to count: Int) -> String { self + String(repeating: ".", count: max(0, count - utf8.count)) }
}

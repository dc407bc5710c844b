import SyncTestSupport
import Testing

@testable import SyncStore

/// Damage that occurs while a store is open, or affects more than one byte.
@Suite("Damage")
struct DamageInUseTests {
  static let path = "/store/journal/0000000000000001.segment"
  let host = SimulatedHost(encrypted: false)

  /// Offset of a text in the first segment.
  func place(of text: String) throws -> Int {
    let bytes = try host.storage.open(Self.path, .readOnly).read(1 << 20, at: 0)
    return try #require(bytes.firstRange(of: Array(text.utf8))?.lowerBound)
  }

  func overwrite(_ range: Range<Int>) throws {
    let file = try host.storage.open(Self.path, .readWrite)
    try file.write([UInt8](repeating: 0, count: range.count), at: range.lowerBound)
    try file.sync()
  }

  @Test("of a key while the store is open is an error, not an absent value (F37)")
  func keyInUse() throws {
    let store = try Store.create(on: host)
    try store.put("the key", "value")
    try store.put("other", "value")
    try host.storage.flipBit(of: Self.path, at: try place(of: "the key"), bit: 1)
    #expect(#expect(throws: StoreError.self) { try store.get("the key") }?.code == .damaged)
    #expect(try store.text("other") == "value")
    try store.put("the key", "again")
    #expect(try store.text("the key") == "again")
  }

  @Test(
    "of a key deleted later does not revive it, neither at reopening nor from a peer (F37)",
    arguments: [(0, false), (0, true), (8, false), (8, true)], [false, true])
  func deleted(damage: (byte: Int, isFoundAtOpening: Bool), inTransaction: Bool) throws {
    var store = try Store.create(on: host)
    let peer = SimulatedHost(seed: 5, machine: "peer", encrypted: false)
    let other = try Store.create(on: peer, id: store.id)
    try store.put("the key", "value")
    try other.receive(from: store)
    try host.storage.flipBit(of: Self.path, at: try place(of: "the keyvalue") + damage.byte, bit: 1)
    host.time += 5
    if damage.isFoundAtOpening {
      try host.storage.syncFileSystem("/store")
      host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
      store = try Store.open(on: host)
    }
    #expect(code { _ = try store.get("the key") } == .damaged)
    let deleted =
      try inTransaction ? store.transaction { try $0.delete("the key") } : store.delete("the key")
    #expect(deleted)
    #expect(try store.get("the key") == nil && !store.delete("the key"))
    // Damage found in use must be repaired before anything is sent.
    host.killProcesses()
    store = try Store.open(on: host)
    #expect(try store.get("the key") == nil)
    for _ in 0..<2 { try store.synchronize(with: other) }
    #expect(try store.get("the key") == nil && other.get("the key") == nil)
    #expect(try store.digest() == other.digest())
  }

  @Test("of one key does not make the delete of another absent key a write")
  func otherKeyDeleted() throws {
    let store = try Store.create(on: host)
    try store.put("the key", "value")
    try store.put("other", "value")
    try store.delete("other")
    try host.storage.flipBit(of: Self.path, at: try place(of: "the key"), bit: 1)
    let position = try store.status().position
    for key in ["other", "absent"] as [Key] {
      #expect(try !store.delete(key) && !store.transaction { try $0.delete(key) })
    }
    #expect(try store.status().position == position)
  }

  @Test("while the store is open stops a round that would claim to cover the lost record (R6)")
  func roundInUse() throws {
    let store = try Store.create(on: host)
    try store.put("the key", "value")
    try store.put("other", "value")
    try host.storage.flipBit(of: Self.path, at: try place(of: "the keyvalue") + 8, bit: 1)
    #expect(
      #expect(throws: StoreError.self) {
        let round = try store.openRound(since: nil, covered: VersionVector())
        while try round.next(maximumBytes: 1000) != nil {}
      }?.code == .damaged)
  }

  @Test("of lengths near the end of a segment crashes no process (F46)")
  func lengthsInUse() throws {
    let store = try Store.create(on: host, configuration: Configuration(durability: .relaxed))
    try RotationTests.fill(store, 69)
    try store.put("\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}", "value")
    let key = try place(of: "\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}")
    try host.storage.flipBit(of: Self.path, at: key - 40 + RecordLayout.length + 3, bit: 5)
    try host.storage.flipBit(of: Self.path, at: key - 40 + RecordLayout.flags, bit: 3)
    #expect(throws: StoreError.self) { try store.get("\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}") }
    #expect(throws: StoreError.self) { try store.list() }
    #expect(try store.status().keys == 69)
  }

  @Test("of a sector with both definitions of an actor serves no older value of its keys (F17, F18)")
  func definitions() throws {
    let store = try Store.create(on: host)
    let peer = SimulatedHost(seed: 5, machine: "peer")
    let other = try Store.create(on: peer, id: store.id)
    // The definition of the peer's number, then a value of this copy, then the peer's for the same key.
    try other.put("first", "x")
    try store.receive(from: other)
    try store.put("k", "older")
    try other.receive(from: store)
    try other.put("k", "newer")
    try store.receive(from: other)
    #expect(try store.text("k") == "newer")
    let actor = try other.actor.bytes
    try store.close()
    let bytes = try host.storage.open(Self.path, .readOnly).read(1 << 20, at: 0)
    let definition = RecordLayout.aligned(RecordLayout.actorDefinitionLength)
    let pattern = actor + bytes[0..<0]
    let start = try #require(
      (4096..<bytes.count).first { at in
        bytes[at..<min(at + 16, bytes.count)].elementsEqual(pattern)
          && bytes[(at + definition)..<(at + definition + 16)].elementsEqual(pattern)
      })
    try overwrite((start - 40)..<(start - 40 + 2 * definition))
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(#expect(throws: StoreError.self) { try again.get("k") }?.code == .damaged)
  }

  @Test("of a sector with part of a key serves no older value of that key (F17, F18)")
  func keyInPart() throws {
    let store = try Store.create(on: host)
    let key = try Key(String(repeating: "a", count: 700))
    try store.put(key, "older")
    try store.put(key, "newer")
    try store.put("behind", "x")
    try store.close()
    let newer = try place(of: "newer")
    let sector = (newer - 5) / 512 * 512
    try overwrite(sector..<(newer - 5))
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(#expect(throws: StoreError.self) { try again.get(key) }?.code == .damaged)
    #expect(try again.text("behind") == "x")
  }

  /// A copy and a peer; both run `body`, then two records are lost whose keys cannot be determined, which is
  /// found when the copy is reopened.
  private func mending(_ body: (Store, Store) throws -> Void) throws -> (store: Store, peer: Store) {
    let store = try Store.create(on: host)
    let peer = try Store.create(on: SimulatedHost(seed: 5, machine: "peer", encrypted: false), id: store.id)
    try body(store, peer)
    for key in ["lost 1", "lost 2"] as [Key] { try store.put(key, "lost too", durability: .full) }
    try store.put("behind", "x", durability: .full)
    let (first, last) = (try place(of: "lost 1"), try place(of: "lost 2"))
    try overwrite(first..<(last + 10))
    host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
    let again = try Store.open(on: host)
    #expect(code { _ = try again.get("never there") } == .damaged)
    #expect(try again.text("behind") == "x")
    return (again, peer)
  }

  @Test("with unknown keys lets no older value of a peer replace a readable one (F17, F37)")
  func readable() throws {
    let (store, peer) = try mending { store, peer in
      try store.put("k", "older")
      try peer.receive(from: store)
      host.time += 5
      try store.put("k", "newer")
    }
    for _ in 0..<2 { try store.synchronize(with: peer) }
    #expect(try store.text("k") == "newer" && peer.text("k") == "newer")
    #expect(try store.digest() == peer.digest() && store.text("behind") == "x")
  }

  @Test(
    "with unknown keys is repaired also if the peer has deleted some readable ones (F17, F37)")
  func deletedElsewhere() throws {
    let (store, peer) = try mending { store, peer in
      try store.put("gone", "1")
      try peer.receive(from: store)
      try peer.delete("gone")
      #expect(try peer.purge() == 1)
    }
    for _ in 0..<2 { try store.synchronize(with: peer) }
    #expect(try store.get("gone") == nil && store.get("never there") == nil)
    #expect(try store.digest() == peer.digest() && store.replicaSummary().health == .healthy)
  }

  @Test("of one byte loses the record that contains it, and no other", arguments: [0, 13, 18, 41, 60])
  func oneByte(offset: Int) throws {
    let store = try Store.create(on: host)
    try store.put("k", String(repeating: "v", count: 40))
    try store.put("other", "x")
    try store.put("k", String(repeating: "w", count: 40))
    try store.close()
    let record = try place(of: "kwwww") - RecordLayout.fixedLength
    let file = try host.storage.open(Self.path, .readWrite)
    try file.write([try file.read(1, at: record + offset)[0] ^ 0x5A], at: record + offset)
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(#expect(throws: StoreError.self) { try again.get("k") }?.code == .damaged)
    #expect(try again.text("other") == "x")
  }

  @Test(
    "of a key fails a scan that would omit it, also in shared mode; a lenient scan names it (F37)"
  )
  func scansInUse() throws {
    let shared = Configuration(mode: .shared)
    let first = try Store.create(on: host, configuration: shared)
    for key in ["a", "b", "c"] { try first.put(try Key(key), "old") }
    for key in ["a", "b", "c"] { try first.put(try Key(key), "new of \(key)") }
    try first.close()
    try host.storage.flipBit(of: Self.path, at: try place(of: "new of b"), bit: 1)
    let store = try Store.open(on: host, configuration: shared)
    #expect(#expect(throws: StoreError.self) { try store.list() }?.code == .damaged)
    var keys: [String] = []
    let (last, doubts) = try store.snapshot().scanReadable(.all) { keys.append("\($0.key)") }
    #expect(keys == ["a", "c"] && last == nil)
    #expect(doubts.map(\.key) == ["b"] && doubts.first?.error.code == .damaged)
    #expect(try store.snapshot().scanReadable(KeyRange(prefix: "c")) { _ in }.doubts.isEmpty)
  }

  @Test("found by the digest of a session does not keep the session from receiving the record again (F37)")
  func foundByDigest() throws {
    let store = try Store.create(on: host)
    let peer = try Store.create(on: SimulatedHost(seed: 5, machine: "peer", encrypted: false), id: store.id)
    for key in ["first", "second", "third"] as [Key] { try store.put(key, "value", durability: .full) }
    try peer.receive(from: store)
    try store.close()
    // The index is intact, and its digest is unknown.
    try JournalIndexFiles.remove(host)
    let other = try Store.open(on: host)
    let second = try place(of: "second")
    try overwrite(second..<second + 6)
    #expect(code { _ = try other.get("second") } == .damaged)
    #expect(try other.replicaSummary().health == .recovering)
    try other.receive(from: peer)
    #expect(try other.text("second") == "value" && other.digest() == peer.digest())
  }
}

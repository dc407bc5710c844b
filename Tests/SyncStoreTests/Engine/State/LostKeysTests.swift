import SyncTestSupport
import Testing

@testable import SyncStore

/// Damage over several records whose keys the bytes no longer tell: an earlier index does.
@Suite("Damage to several records")
struct LostKeysTests {
  private static let path = DamageInUseTests.path
  private static let lost: [Key] = ["lost 1", "lost 2", "lost 3"]
  private let host: SimulatedHost

  init() { host = SimulatedHost(compacting: .onRequest, encrypted: false) }

  private func place(of text: String) throws -> Int {
    let bytes = try host.storage.open(Self.path, .readOnly).read(1 << 20, at: 0)
    return try #require(bytes.firstRange(of: Array(text.utf8))?.lowerBound)
  }

  private func overwrite(_ range: Range<Int>) throws {
    let file = try host.storage.open(Self.path, .readWrite)
    try file.write([UInt8](repeating: 0xEE, count: range.count), at: range.lowerBound)
    try file.sync()
  }

  /// A store with `lost` in one run, keys before and after, and a member record.
  private func filled(_ before: (Store) throws -> Void = { _ in }) throws -> Store {
    let store = try Store.create(on: host)
    try store.putReserved(ReservedKey.member(Self.device), [1])
    for key in ["old 1", "old 2"] + Self.lost { try store.put(key, "first") }
    try before(store)
    for key in Self.lost { try store.put(key, "its second value") }
    try store.put("new", "x", durability: .full)
    return store
  }

  private static let device = DeviceID(bytes: [UInt8](0..<32))!

  /// Overwrites the second records of `lost` from the middle of the first to the middle of the last.
  private func damage() throws {
    let bytes = try host.storage.open(Self.path, .readOnly).read(1 << 20, at: 0)
    let first = try #require(bytes.firstRange(of: Array("lost 1its second".utf8))?.lowerBound)
    let last = try #require(bytes.firstRange(of: Array("lost 3its second".utf8))?.lowerBound)
    try overwrite(first..<last + 8)
  }

  private func expectOnlyLost(_ store: Store, _ what: String) throws {
    for key in Self.lost {
      #expect(code { _ = try store.get(key) } == .damaged, "\(what): \(key)")
    }
    for key in ["old 1", "old 2"] as [Key] { #expect(try store.text(key) == "first", "\(what): \(key)") }
    #expect(try store.text("new") == "x" && store.get("never there") == nil, "\(what)")
    #expect(try store.reserved(ReservedKey.member(Self.device)) == [1], "\(what)")
    #expect(try store.reservedKeyDamage == nil, "\(what)")
  }

  @Test(
    "loses only the keys of the lost records, before and after a full scan, with and without an index (G)")
  func onlyLost() throws {
    var store = try filled()
    try damage()
    try expectOnlyLost(store, "in use")
    #expect(try !store.verify().isClean)
    try expectOnlyLost(store, "after verify")
    try store.recovery.recoverFromDamage()
    try expectOnlyLost(store, "after the journal was read")
    try store.close()
    store = try Store.open(on: host)
    try expectOnlyLost(store, "opened again")
    try store.close()
    try JournalIndexFiles.remove(host)
    store = try Store.open(on: host)
    try expectOnlyLost(store, "opened without the index")
    #expect(try store.keysToRecover().count == 3 && store.countUnrecovered(of: store.keysToRecover()) == 3)
    try store.put("lost 2", "third")
    #expect(try store.text("lost 2") == "third" && store.countUnrecovered(of: store.keysToRecover()) == 2)
  }

  @Test("found by the last process costs the next one no other keys, also read-only (G)")
  func foundBefore() throws {
    for mode in [.readOnly, .exclusive] as [Configuration.Mode] {
      let test = LostKeysTests()
      let store = try test.filled()
      try test.damage()
      #expect(code { _ = try store.get("lost 1") } == .damaged)
      try store.close()
      let again = try Store.open(on: test.host, configuration: Configuration(mode: mode))
      #expect(again.core.engine.withLock { $0.damage.gaps.count } == 1, "it has read all of the journal")
      try test.expectOnlyLost(again, "\(mode)")
    }
  }

  @Test(
    "counts as three lost keys when no peer has them, and as none when one brings them",
    arguments: [false, true])
  func full(hasThem: Bool) throws {
    let store = try filled()
    let peer = try Store.create(on: SimulatedHost(seed: 5, machine: "peer", encrypted: false), id: store.id)
    if hasThem { try peer.receive(from: store) }
    try damage()
    try store.recovery.recoverFromDamage()
    let losses = try store.keysToRecover()
    try store.receive(from: peer)
    #expect(try store.replicaSummary().health == .healthy && store.status().damagedPlaces == 0)
    let missing = try store.countUnrecovered(of: losses)
    #expect(missing == (hasThem ? 0 : 3), "\(losses)")
    #expect(try store.text("lost 1") == (hasThem ? "its second value" : nil))
    #expect(try store.text("old 1") == "first")
    #expect(
      try store.conflicts().compactMap(\.key).sorted() == (hasThem ? [] : Self.lost),
      "older values can be restored")
  }

  @Test(
    "never lets an older value, or an older tombstone, replace the lost one that a third copy has (F37)",
    arguments: [false, true], [1, 3])
  func thirdCopy(wasDeleted: Bool, lost: Int) throws {
    let store = try filled { store in if wasDeleted { for key in Self.lost { try store.delete(key) } } }
    let third = try Store.create(on: SimulatedHost(seed: 5, machine: "third", encrypted: false), id: store.id)
    let peer = try Store.create(on: SimulatedHost(seed: 6, machine: "peer", encrypted: false), id: store.id)
    try third.receive(from: store)
    if lost == 1 {
      try host.storage.flipBit(of: Self.path, at: try place(of: "lost 1its second") + 10, bit: 1)
    } else {
      try damage()
    }
    host.time += 5
    try store.recovery.recoverFromDamage()
    try store.receive(from: peer)
    for _ in 0..<2 { try store.synchronize(with: third) }
    for key in Self.lost {
      #expect(try store.text(key) == "its second value" && third.text(key) == "its second value", "\(key)")
    }
    #expect(try store.digest() == third.digest() && store.status().damagedPlaces == 0)
  }

  @Test("that grows is known by the records lost before and since")
  func grows() throws {
    let store = try filled()
    let (first, last) = (try place(of: "lost 1its second"), try place(of: "newx"))
    try overwrite(first..<(try place(of: "lost 2its second") + 8))
    try store.recovery.recoverFromDamage()
    #expect(try store.keysToRecover().count == 2)
    try overwrite(first..<last + 2)
    try store.recovery.recoverFromDamage()
    #expect(try store.keysToRecover().count == 4)
    for key in Self.lost + ["new"] { #expect(code { _ = try store.get(key) } == .damaged, "\(key)") }
    #expect(try store.text("old 1") == "first" && store.get("never there") == nil)
    try store.close()
    try JournalIndexFiles.remove(host)
    let again = try Store.open(on: host)
    for key in Self.lost + ["new"] { #expect(code { _ = try again.get(key) } == .damaged, "\(key)") }
    #expect(try again.text("old 1") == "first" && again.get("never there") == nil)
  }

  @Test("that includes a purge record makes all older keys possibly lost: purged ones must not come back")
  func purged() throws {
    let store = try filled { store in
      try store.put("gone", "value")
      try store.delete("gone")
      try store.put("before", "x")
      #expect(try store.purge() == 1)
    }
    try damage()
    let start = try place(of: "beforex") + 16
    try overwrite(start..<(try place(of: "newx") - RecordLayout.fixedLength))
    #expect(try store.get("gone") == nil)
    try store.recovery.recoverFromDamage()
    for key in Self.lost + ["gone", "old 1", "never there"] {
      #expect(code { _ = try store.get(key) } == .damaged, "\(key)")
    }
    #expect(try store.text("new") == "x" && store.reservedKeyDamage?.code == .damaged)
  }

  @Test(
    "that includes a parked record loses its key, too, or all keys if it is unknown",
    arguments: [false, true])
  func parked(isReopened: Bool) throws {
    let ahead = SimulatedHost(seed: 6, machine: "ahead", encrypted: false)
    ahead.time += 3_600_000
    let store = try filled { store in
      let other = try Store.create(on: ahead, id: store.id)
      try other.put("old 1", "of an hour later")
      try store.receive(from: other)
      #expect(try store.status().parked == 1 && store.text("old 1") == "first")
    }
    let (start, end) = (try place(of: "of an hour later") - 10, try place(of: "lost 3its second"))
    try damage()
    try overwrite(start..<end)
    if isReopened {
      #expect(code { _ = try store.get("lost 1") } == .damaged)
      try store.close()
      let again = try Store.open(on: host)
      for key in ["old 1", "old 2", "lost 1"] as [Key] {
        #expect(code { _ = try again.get(key) } == .damaged, "\(key)")
      }
      return
    }
    try store.recovery.recoverFromDamage()
    #expect(code { _ = try store.get("old 1") } == .damaged)
    #expect(try store.text("old 2") == "first" && store.reservedKeyDamage == nil)
  }

  @Test(
    "with unknown keys leaves known members readable, but they must grant nothing (F81)")
  func members() throws {
    let store = try filled()
    try damage()
    host.killProcesses()
    try JournalIndexFiles.remove(host)
    let again = try Store.open(on: host)
    #expect(code { _ = try again.get("old 1") } == .damaged)
    #expect(try again.reservedKeyDamage?.code == .damaged)
    #expect(try again.reserved(ReservedKey.member(Self.device)) == [1])
    #expect(try again.reserved(prefix: ReservedKey.memberPrefix).map(\.value) == [[1]])
    let unknown = try #require(DeviceID(bytes: [UInt8](repeating: 7, count: 32)))
    #expect(code { _ = try again.reserved(ReservedKey.member(unknown)) } == .damaged)
    _ = store
  }

  @Test("is recorded with the lost keys, and records of programs that did not list them are readable")
  func records() throws {
    var keys = LostKeyFingerprints()
    for fingerprint in [3, 1, 0x7FFF_FFFF] as [UInt32] {
      keys.insert(fingerprint, seed: 0x0102_0304_0506_0708)
    }
    keys.insert(9, seed: 5)
    let place = Location(segment: 4, offset: 1024)
    let bytes = ReplicaState.encode(damageUpTo: 2048, isResolved: false, lost: keys)
    #expect(bytes.prefix(18) == [0, 0, 8, 0, 0, 2, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
    #expect(bytes[18..<34] == [9, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0])
    #expect(bytes[34...] == [1, 0, 0, 0, 3, 0, 0, 0, 255, 255, 255, 127])
    var state = ReplicaState()
    state.apply(local: StateKey.damage(place), bytes)
    #expect(
      state.handledDamage.end(of: place) == 2048 && state.handledDamage.lostKeys(of: place) == keys
        && state.handledDamage.resolvedCount == 0)
    state.apply(local: StateKey.damage(place), [0, 0, 8, 0, 0])
    #expect(
      state.handledDamage.end(of: place) == 2048 && state.handledDamage.lostKeys(of: place) == nil)
    state.apply(local: StateKey.damage(place), Array(bytes.dropLast()))
    #expect(state.handledDamage.lostKeys(of: place) == nil, "a part of them would be a wrong answer")
  }
}

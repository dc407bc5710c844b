import SyncTestSupport
import Testing

@testable import SyncStore

/// Parked values that come due while there is no space for the values they beat, which must be kept.
@Suite("A full disk when a parked record comes due")
struct WaitingOnFullDiskTests {
  private let left = SimulatedHost(seed: 1, machine: "left")
  private let right = SimulatedHost(seed: 2, machine: "right", compacting: .onRequest)

  /// A copy that holds a "k" and has parked later values of "k" and "new"; and the other one, whose clock is
  /// ahead. Then the disk fills up, and the values come due. Returns the number of other values.
  private func copies(
    sizes: [Int] = [15_000, 100, 1], early: String? = nil, batches: Int = .max
  ) throws -> (ahead: Store, store: Store, count: Int) {
    let store = try Store.create(on: right, configuration: FullDiskTests.small)
    try store.put("k", [UInt8](repeating: 1, count: 10_000))
    if let early { try store.put("new", early) }
    left.time += 10 * 60_000
    let ahead = try Store.create(on: left, id: store.id)
    for key in ["k", "new"] as [Key] { try ahead.put(key, "later") }
    try store.receive(from: ahead, batches: batches)
    #expect(try store.status().parked == 2)
    right.storage.free = 1 << 20
    var count = 0
    for bytes in sizes {
      while (try? store.put(Key("\(count)"), [UInt8](repeating: 1, count: bytes))) != nil { count += 1 }
    }
    #expect(right.storage.free == 0)
    // As far ahead as a clock may be.
    right.time += 10 * 60_000 - 59_000
    return (ahead, store, count)
  }

  /// Checks that everything is as on a disk with space.
  private func check(_ store: Store) throws {
    try store.put("other", "x")
    #expect(try store.status().parked == 0)
    #expect(try store.text("k") == "later" && store.text("new") == "later")
    #expect(try store.conflicts().map(\.value?.count) == [10_000])
    #expect(try store.verify().isClean)
  }

  @Test(
    "accepts deletes, is cleaned by a compaction, and then applies it, also after reopening (F25, F50)",
    arguments: [false, true])
  func deletes(reopens: Bool) throws {
    var (_, store, count) = try copies()
    if reopens {
      right.killProcesses()
      store = try Store.open(on: right, configuration: FullDiskTests.small)
    }
    #expect(code { try store.put("other", [UInt8](repeating: 1, count: 1000)) } == .diskFull)
    for number in 0..<count { #expect(try store.delete(Key("\(number)"))) }
    #expect(try store.text("k") == "later" && store.status().parked == 2)
    #expect(try store.compact() > 1 << 19)
    try check(store)
  }

  @Test("applies it once there is space again (F25, F50)")
  func room() throws {
    let (_, store, _) = try copies()
    #expect(try store.delete("0"))
    right.storage.free = nil
    try check(store)
  }

  @Test(
    "allows deleting it, which is not undone once there is space again (F25, F50)", arguments: ["k", "new"])
  func deleted(name: String) throws {
    let (ahead, store, _) = try copies()
    let key = try Key(name)
    #expect(try store.text(key) == "later")
    #expect(try store.delete(key))
    #expect(try store.get(key) == nil)
    right.storage.free = nil
    try store.put("other", "x")
    #expect(try store.status().parked == 0 && store.get(key) == nil)
    try ahead.synchronize(with: store)
    #expect(try ahead.get(key) == nil && ahead.digest() == store.digest())
  }

  // MARK: Writers see the same values as readers

  /// The last free bytes take small values, though the parked ones do not fit.
  private static let leavingSome = [9000]

  @Test("makes compare-and-set use the value that is read (F25, F50)")
  func compared() throws {
    let (_, store, _) = try copies(sizes: Self.leavingSome)
    #expect(try store.text("new") == "later" && store.text("k") == "later")
    #expect(try store.status().parked == 2)
    #expect(try store.put("new", [1], expecting: .absent) == nil)
    #expect(try store.put("new", Array("mine".utf8), expecting: .value(Array("later".utf8))) != nil)
    #expect(try store.status().parked == 2, "it waits still")
    #expect(try store.delete("k", expecting: .value(Array("later".utf8))))
    right.storage.free = nil
    try store.put("other", "x")
    #expect(try store.status().parked == 0 && store.get("k") == nil && store.text("new") == "mine")
  }

  @Test("makes a put count as a change if it differs from the value that is read (F25, F50)")
  func changed() throws {
    let (_, store, _) = try copies(sizes: Self.leavingSome, early: "old")
    #expect(try store.text("new") == "later")
    #expect(try !store.putIfChanged("new", Array("later".utf8), type: .string))
    #expect(try store.putIfChanged("new", Array("old".utf8), type: .string))
    right.storage.free = nil
    try store.put("other", "x")
    #expect(try store.status().parked == 0 && store.text("new") == "old")
  }

  @Test("makes a new deadline apply to the value that is read (F25, F50)")
  func expired() throws {
    let (_, store, _) = try copies(sizes: Self.leavingSome, early: "old")
    #expect(try store.expire("new", .after(.hours(1))))
    #expect(try store.status().parked == 2 && store.text("new") == "later")
    right.storage.free = nil
    try store.put("other", "x")
    #expect(try store.status().parked == 0 && store.text("new") == "later")
    #expect(try store.deadline(of: "new") != nil)
  }

  @Test(
    "keeps the tombstone that ends it for members that have not seen it, before it is purged (F25, F50)",
    arguments: [false, true])
  func named(isFull: Bool) throws {
    let third = SimulatedHost(seed: 3, machine: "third")
    third.time += 10 * 60_000
    let (ahead, store, _) = try copies(batches: 1)
    let relay = try Store.create(on: third, id: store.id)
    try relay.receive(from: ahead)
    if !isFull { right.storage.free = nil }
    #expect(try store.delete("new") && store.get("new") == nil)
    right.storage.free = nil
    try store.put("other", "x")
    #expect(try store.status().parked == 0)
    for host in [left, right, third] { host.time += Limits.retirementMilliseconds + 700_000 }
    _ = try store.purge()
    try store.receive(from: relay)
    #expect(try store.get("new") == nil)
  }
}

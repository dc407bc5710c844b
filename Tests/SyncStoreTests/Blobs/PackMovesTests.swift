import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Objects moved from pack to pack")
struct PackMovesTests {
  @Test("stay known to another process that reads the packs in the middle of the move")
  func followed() throws {
    let test = try BlobsUnderTest(.disk)
    let plan = FaultPlan()
    let one = try test.open(
      FaultingStorage(test.base.storage, plan: plan), packing: PackReclaimTests.tiny)
    let two = try test.open(packing: PackReclaimTests.tiny)
    let kept = try PackReclaimTests.mostlyDead(one, 4)
    try PackReclaimTests.expectAll(kept, in: two)
    plan.before(.sync, of: ".pack") { try? two.packs.refresh() }
    try one.packs.reclaim()
    var listed = 0
    try two.packs.eachObject { _, _, _ in listed += 1 }
    #expect(listed == kept.count)
    try PackReclaimTests.expectAll(kept, in: two)
    #expect(try two.packs.totals() == one.packs.totals())
  }

  @Test("put by two processes stay known to both when one of the duplicates is removed")
  func duplicates() throws {
    let test = try BlobsUnderTest(.disk)
    let one = try test.open(packing: .small)
    let two = try test.open(packing: .small)
    _ = try (one.packs.totals(), two.packs.totals())
    let reference = try one.put(bytes: pattern(9000), durable: false)
    #expect(try two.put(bytes: pattern(9000), durable: true) == reference)
    try one.sync()
    let (pack, slot) = try #require(try one.packs.lookUp(reference.hash, refreshing: false))
    let entry = try #require(pack.entry(slot))
    _ = one.quarantine(reference.hash, pack: pack, entry: entry)
    #expect(try one.read(reference) == pattern(9000))
    // A process that comes late, with stale results, does not set the other one aside.
    _ = one.quarantine(reference.hash, pack: pack, entry: entry)
    #expect(try one.read(reference) == pattern(9000))
    #expect(try one.remove(reference.hash))
    #expect(try !one.has(reference) && !test.open(packing: .small).has(reference))
  }

  @Test("stay live in one pack when two processes move them concurrently", arguments: [false, true])
  func movedTwice(knowsTheOther: Bool) throws {
    let test = try BlobsUnderTest(.disk)
    let one = try test.open(packing: .small)
    let reference = try one.put(bytes: pattern(9000), durable: true)
    try one.packs.retireWriter()
    let two = try test.open(packing: .small)
    let both = try [one, two].map { tier in
      let (pack, slot) = try #require(try tier.packs.lookUp(reference.hash, refreshing: true))
      return (tier, PackSet.MovedObject(pack: pack, slot: slot, name: reference.hash))
    }
    for (tier, moved) in both {
      let stamp = moved.pack.word(moved.slot).stamp
      _ = try tier.packs.add(reference.hash, pattern(9000), stamp: stamp, .moving(moved))
    }
    if knowsTheOther { try two.packs.refresh() }
    for (tier, moved) in both {
      try tier.packs.moving.withLock { _ throws(StoreError) in try tier.packs.commitMoves([moved]) }
    }
    #expect(try one.read(reference) == pattern(9000))
    #expect(try two.read(reference) == pattern(9000))
    #expect(try test.open(packing: .small).read(reference) == pattern(9000))
  }

  @Test(
    "put by two processes stay if one of them relies on its own, whatever the other one's clock"
  )
  func evicted() throws {
    let test = try BlobsUnderTest(.disk)
    let ahead = try test.open(packing: .small)
    let two = try BlobStore.open(
      directory: test.directory, storage: test.base.storage, packing: .small,
      environment: BlobEnvironment(now: { 500_000 }))
    _ = try (ahead.packs.totals(), two.packs.totals())
    let reference = try ahead.put(bytes: pattern(9000), durable: false)
    _ = try two.put(bytes: pattern(9000), durable: false)
    try ahead.packs.refresh()
    #expect(ahead.packs.state.withLock { $0.duplicates.count } == 1)
    let use = try #require(try ahead.uses().first)
    #expect(try two.retain(reference.hash))
    #expect(try ahead.evict([(reference.hash, use)]) == [false])
    for tier in [ahead, two, try test.open(packing: .small)] {
      #expect(try tier.read(reference) == pattern(9000))
    }
    // Nothing has claimed the rest since it was listed.
    let rest = try ahead.uses().map { (reference.hash, $0) }
    #expect(try ahead.evict(rest) == [true] && !test.open(packing: .small).has(reference))
  }

  // MARK: In a cache

  private let host = SimulatedHost(encrypted: false)

  private func open(count: Int = .max, failing plan: FaultPlan = FaultPlan()) throws -> DiskCache {
    var limits = DiskCache.Limits()
    (limits.count, limits.trimInterval) = (count, 0)
    return try DiskCache(
      at: "/cache", limits: limits,
      environment: host.environment(over: FaultingStorage(host.storage, plan: plan)), packing: .small)
  }

  /// A cache most of whose early values were evicted, so that the remaining ones are moved; and those
  /// remaining ones.
  private func toMove(_ plan: FaultPlan) throws -> (cache: DiskCache, kept: [String]) {
    let first = try open()
    for number in 0..<40 { try first.set("\(number)", pattern(9000, seed: UInt64(number))) }
    first.close()
    let cache = try open(failing: plan)
    for number in 0..<20 where number % 4 > 0 { try cache.remove("\(number)") }
    return (cache, (0..<5).map { "\($0 * 4)" })
  }

  @Test("do not come back when they are removed before the old packs are gone")
  func removed() throws {
    let plan = FaultPlan()
    let (cache, kept) = try toMove(plan)
    plan.before(.sync, of: ".pack") { for key in kept { _ = try? cache.remove(key) } }
    for _ in 0..<2 { try cache.packs.reclaim() }
    #expect(try kept.filter { try cache.contains($0) } == [])
    #expect(try cache.count == 20 && cache.totalBytes == cache.packs.uses().reduce(0) { $0 + $1.size })
    cache.close()
    let again = try open()
    #expect(try kept.filter { try again.contains($0) } == [] && again.count == 20)
  }

  @Test("are not visible again when they are removed while they are copied")
  func removedEarly() throws {
    let plan = FaultPlan()
    let (cache, kept) = try toMove(plan)
    plan.before(.map, of: ".pack") { for key in kept { _ = try? cache.remove(key) } }
    let seen = Locked<[String]>([])
    plan.before(.sync, of: ".pack") {
      for key in kept where (try? cache.contains(key)) != false { seen.withLock { $0.append(key) } }
    }
    for _ in 0..<2 { try cache.packs.reclaim() }
    #expect(seen.withLock { $0 } == [])
    #expect(try cache.count == 20 && kept.filter { try cache.contains($0) } == [])
  }

  @Test("do not hide the value that replaced them while they were copied")
  func replaced() throws {
    let plan = FaultPlan()
    let (cache, kept) = try toMove(plan)
    plan.before(.map, of: ".pack") { for key in kept { try? cache.set(key, [1]) } }
    // Before the old ones have ended, and after.
    let early = Locked<[String]>([])
    plan.before(.sync, of: ".pack") {
      for key in kept where (try? cache.get(key)) != [1] { early.withLock { $0.append(key) } }
    }
    for _ in 0..<2 { try cache.packs.reclaim() }
    #expect(early.withLock { $0 } == [])
    #expect(try kept.filter { try cache.get($0) != [1] } == [])
    cache.close()
    let again = try open()
    #expect(try kept.filter { try again.get($0) != [1] } == [] && again.count == 25)
  }

  @Test(
    "let a cache that began empty keep few packs more than its values need, even before it is reopened")
  func firstInstance() throws {
    let cache = try open(count: 60)
    for round in 0..<40 {
      try cache.set("hot \(round)", pattern(2000))
      for cold in 0..<30 { try cache.set("\(round), \(cold)", pattern(2000)) }
      for hot in 0...round { _ = try cache.get("hot \(hot)") }
      try cache.trim()
    }
    let bytes = try host.storage.list("/cache/packs").reduce(0) {
      $0 + (try host.storage.status("/cache/packs/" + $1)?.size ?? 0)
    }
    #expect(try cache.count == 60 && bytes < cache.totalBytes * 2 + 4 * (64 << 10), "\(bytes)")
  }
}

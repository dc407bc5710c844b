import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Retention and eviction in memory.
@Suite("A memory cache")
struct MemoryCacheTests {
  /// Reports when it is released, and on which thread.
  final class Witness: Sendable {
    let number: Int
    let released: @Sendable (Int) -> Void

    init(_ number: Int, _ released: @escaping @Sendable (Int) -> Void) {
      (self.number, self.released) = (number, released)
    }

    deinit { released(number) }
  }

  let time = Locked<UInt64>(1000)

  func cache<Value: Sendable>(
    of _: Value.Type = Int.self, count: Int = .max, cost: Int = .max, age: Double = .infinity,
    inBackground: Bool = false, yields: Bool = false
  ) -> MemoryCache<String, Value> {
    let time = time
    return MemoryCache(
      name: "tested", limits: CacheLimits(count: count, cost: cost, age: age), trimInterval: 0,
      release: inBackground ? .inBackground : .onEvictingThread, yieldsToPressure: yields,
      now: { time.withLock { $0 } })
  }

  @Test("returns and counts what was set, and forgets what was removed")
  func basics() {
    let cache = cache()
    cache.set("a", 1, cost: 10)
    cache["b"] = 2
    #expect(cache.get("a") == 1 && cache["b"] == 2 && cache.get("c") == nil)
    #expect(cache.contains("a") && !cache.contains("c"))
    #expect(cache.count == 2 && cache.totalCost == 10)
    cache.set("a", 3, cost: 4)
    #expect(cache["a"] == 3 && cache.count == 2 && cache.totalCost == 4)
    #expect(cache.remove("a") == 3 && cache.remove("a") == nil)
    cache["b"] = nil
    #expect(cache.count == 0 && cache.totalCost == 0)
    cache.set("d", 4, cost: 5)
    cache.removeAll()
    #expect(cache.get("d") == nil && cache.count == 0 && cache.totalCost == 0)
    #expect(cache.name == "tested")
  }

  @Test("evicts the least recently used first, whatever the insertion order")
  func order() {
    let cache = cache(count: 3)
    for (number, key) in ["a", "b", "c"].enumerated() { cache.set(key, number) }
    _ = cache.get("a")
    cache.set("b", 9)
    // A peek does not count as a use.
    _ = cache.contains("c")
    cache.set("d", 3)
    #expect(!cache.contains("c") && cache.contains("a") && cache.contains("b"))
    cache.set("e", 4)
    #expect(!cache.contains("a"))
    cache.countLimit = 1
    #expect(cache.count == 1 && cache.get("e") == 4)
  }

  @Test("bounds costs after each call, also with one value that is too large alone")
  func costs() {
    let cache = cache(cost: 100)
    for number in 0..<20 { cache.set("\(number)", number, cost: 30) }
    #expect(cache.count == 3 && cache.totalCost == 90 && cache.contains("19"))
    cache.set("small", 0, cost: 10)
    #expect(cache.totalCost == 100 && cache.count == 4)
    cache.set("huge", 0, cost: 101)
    #expect(cache.count == 0 && cache.totalCost == 0)
    cache.set("a", 1, cost: 60)
    cache.set("b", 1, cost: 40)
    cache.trim(toCost: 50)
    #expect(!cache.contains("a") && cache.totalCost == 40)
  }

  @Test("evicts values unused for too long by a trim by age")
  func ages() {
    let cache = cache(age: 10)
    cache.set("old", 1)
    cache.set("used", 2)
    time.withLock { $0 += 9_000 }
    _ = cache.get("used")
    cache.set("new", 3)
    time.withLock { $0 += 2_000 }
    cache.trim(toAge: cache.ageLimit)
    #expect(!cache.contains("old") && cache.contains("used") && cache.contains("new"))
    cache.trim(toAge: 0)
    #expect(cache.count == 0)
  }

  @Test("trims by itself at its interval")
  func interval() {
    let done = DispatchSemaphore(value: 0)
    let cache = MemoryCache<Int, Witness>(ageLimit: 0.001, trimInterval: 0.01)
    cache.set(1, Witness(1) { _ in done.signal() })
    #expect(done.wait(timeout: .now() + 20) == .success)
    #expect(cache.count == 0)
  }

  @Test("behaves like a simple model, over many random calls", arguments: 0..<20 as Range<UInt64>)
  func model(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let cache = cache(count: 40, cost: 500)
    // From the least to the most recently used.
    var model: [(key: String, value: Int, cost: Int)] = []
    for step in 0..<3000 {
      let key = "\(random.next() % 80)"
      let place = model.firstIndex { $0.key == key }
      switch random.next() % 8 {
      case 0:
        #expect(cache.remove(key) == place.map { model.remove(at: $0).value })
      case 1...3:
        #expect(cache.get(key) == place.map { model[$0].value })
        if let place { model.append(model.remove(at: place)) }
      case 4 where step % 50 == 0:
        cache.trim(toCount: 10)
        model.removeFirst(max(0, model.count - 10))
      default:
        let cost = Int(random.next() % 40)
        cache.set(key, step, cost: cost)
        if let place { model.remove(at: place) }
        model.append((key, step, cost))
        while model.count > 40 || model.reduce(0, { $0 + $1.cost }) > 500 { model.removeFirst() }
      }
      #expect(
        cache.count == model.count && cache.totalCost == model.reduce(0) { $0 + $1.cost }, "step \(step)")
    }
    for entry in model { #expect(cache.get(entry.key) == entry.value) }
  }

  @Test(
    "releases values off the caller's thread on request, otherwise on it",
    arguments: [true, false])
  func releasing(inBackground: Bool) {
    let done = DispatchSemaphore(value: 0)
    let threads = Locked<[Bool]>([])
    let caller = Thread.current.hash
    let cache = cache(of: Witness.self, count: 3, inBackground: inBackground)
    func set(_ key: String, _ number: Int) {
      cache.set(
        key,
        Witness(number) { _ in
          threads.withLock { $0.append(Thread.current.hash == caller) }
          done.signal()
        })
    }
    for number in 0..<5 { set("\(number)", number) }
    set("4", 9)
    cache.trim(toCount: 1)
    cache.removeAll()
    for _ in 0..<6 { done.wait() }
    #expect(threads.withLock { $0 } == [Bool](repeating: !inBackground, count: 6))
  }

  @Test("evicts half under memory pressure, all when it is critical; a released cache is not notified")
  func pressure() {
    var cache: MemoryCache<String, Int>? = cache(yields: true)
    let deaf = self.cache(yields: false)
    for number in 0..<100 {
      cache?.set("\(number)", number)
      deaf.set("\(number)", number)
    }
    MemoryPressure.announce(.some)
    #expect(cache?.count == 50 && cache?.contains("99") == true && cache?.contains("0") == false)
    MemoryPressure.announce(.critical)
    #expect(cache?.count == 0)
    weak let gone = cache
    cache = nil
    #expect(gone == nil)
    MemoryPressure.announce(.critical)
    #expect(deaf.count == 100)
  }

  @Test("waits for the kernel's memory pressure events where they are available")
  func kernel() {
    _ = cache(yields: true)
    let source = MemoryPressure.source
    // Without PSI, or the right to a trigger, there is nothing to wait for: only `announce` reports then.
    if getuid() == 0, FileManager.default.isWritableFile(atPath: "/proc/pressure/memory") {
      #expect(source?.hasSuffix("/memory.pressure") == true || source == "/proc/pressure/memory")
    }
    #expect(source.map { FileManager.default.fileExists(atPath: $0) } ?? true)
  }

  @Test("concurrent threads lose none of each other's values")
  func threads() throws {
    let cache = MemoryCache<Int, Int>(countLimit: 5000, trimInterval: 0.001, yieldsToPressure: false)
    let workers = (0..<4).map { worker in
      Worker.run {
        for number in 0..<20_000 {
          let key = worker * 1_000_000 + number % 1000
          cache.set(key, number, cost: 1)
          if let found = cache.get(key), found != number {
            throw StoreError(.damaged, "\(found) for \(number)")
          }
          if number % 7 == 0 { cache.remove(key) }
        }
      }
    }
    for worker in workers { try worker.wait() }
    #expect(cache.count == cache.totalCost && cache.count <= 4000 && cache.count > 3000)
  }

  @Test("accepts the longest and the shortest interval")
  func intervals() {
    for interval in [Double.infinity, .greatestFiniteMagnitude, .leastNonzeroMagnitude] {
      let cache = MemoryCache<Int, Int>(trimInterval: interval, yieldsToPressure: false)
      cache.set(1, 1)
      #expect(cache.get(1) == 1)
    }
  }

  @Test("accepts the largest costs: their sum does not overflow")
  func largestCosts() {
    let cache = MemoryCache<Int, Int>(yieldsToPressure: false)
    for number in 0..<3 { cache.set(number, number, cost: .max) }
    #expect(cache.count == 1 && cache.totalCost == .max && cache.get(2) == 2)
    cache.set(2, 2, cost: -1)
    #expect(cache.totalCost == 0)
  }

  @Test("evicts half of its values under memory pressure, however many there are")
  func half() {
    let cache = cache()
    for number in 0..<10_000 { cache.set("\(number)", number) }
    cache.yield(to: .some)
    #expect(cache.count == 5000 && cache.get("9999") == 9999 && cache.get("4999") == nil)
  }
}

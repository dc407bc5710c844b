import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A transaction with savepoints")
struct SavepointTests {
  struct Refusal: Error {}
  let host = SimulatedHost(compacting: .onRequest)

  @Test("rolls back a nested part that throws, and keeps the rest")
  func nested() throws {
    let store = try Store.create(on: host)
    try store.put("a", "0")
    try store.transaction { transaction in
      try transaction.put("a", [1])
      try transaction.nested { transaction in
        try transaction.put("b", [2])
        #expect(throws: Refusal.self) {
          try transaction.nested { transaction in
            try transaction.delete("a")
            try transaction.put("c", [UInt8](repeating: 3, count: 30_000))
            throw Refusal()
          }
        }
        #expect(try transaction.get("a")?.bytes == [1])
        #expect(try transaction.get("c") == nil)
      }
    }
    #expect(try store.get("a")?.bytes == [1])
    #expect(try store.get("b")?.bytes == [2])
    #expect(try store.get("c") == nil)
    #expect(try store.log(from: 0, limit: 10).map(\.dot.sequence) == [1, 2, 3])
    #expect(try store.verify().isClean)
  }

  @Test("refuses a savepoint that was rolled back, or belongs to another transaction")
  func invalid() throws {
    let store = try Store.create(on: host)
    var kept: Savepoint?
    try store.transaction { transaction in
      let first = transaction.savepoint()
      try transaction.put("a", [1])
      let second = transaction.savepoint()
      try transaction.rollBack(to: first)
      #expect(
        #expect(throws: StoreError.self) { try transaction.rollBack(to: second) }?.code == .outOfBounds)
      try transaction.put("b", [1])
      try transaction.rollBack(to: first)
      try transaction.put("c", [1])
      transaction.release(first)
      #expect(
        #expect(throws: StoreError.self) { try transaction.rollBack(to: first) }?.code == .outOfBounds)
      kept = transaction.savepoint()
    }
    #expect(try store.list().map(\.key) == ["c"])
    let foreign = try #require(kept)
    #expect(
      #expect(throws: StoreError.self) {
        try store.transaction { try $0.rollBack(to: foreign) }
      }?.code == .outOfBounds)
  }

  @Test("behaves like a model, whatever the history", arguments: 0..<20 as Range<UInt64>)
  func random(seed: UInt64) throws {
    let store = try Store.create(on: host)
    var model: [Key: UInt8] = [:]
    var random = SplitMix64(seed: seed)
    for _ in 0..<8 {
      let before = model
      do {
        try store.transaction { transaction in
          try Self.play(&transaction, &model, &random, depth: 0)
          if random.chance(25) { throw Refusal() }
        }
      } catch is Refusal { model = before }
      var state: [Key: UInt8] = [:]
      try store.scan { key, value in state[try Key(bytes: [UInt8](copying: key))] = value.load(0) }
      #expect(state == model, "seed \(seed)")
    }
    try store.close()
    let again = try Store.open(on: host)
    #expect(try again.list().count == model.count)
    #expect(try again.verify().isClean)
  }

  static func play(
    _ transaction: inout Transaction, _ model: inout [Key: UInt8], _ random: inout SplitMix64, depth: Int
  ) throws {
    var savepoints: [(Savepoint, [Key: UInt8])] = []
    for _ in 0..<12 {
      let key = try Key("k\(random.next() % 12)")
      let value = UInt8(truncatingIfNeeded: random.next())
      switch random.next() % 10 {
      case 0 where depth < 4:
        let before = model
        do {
          try transaction.nested { transaction in
            try play(&transaction, &model, &random, depth: depth + 1)
            if random.chance(50) { throw Refusal() }
          }
        } catch is Refusal { model = before }
      case 1: savepoints.append((transaction.savepoint(), model))
      case 2:
        guard let index = savepoints.indices.randomElement(using: &random) else { continue }
        try transaction.rollBack(to: savepoints[index].0)
        model = savepoints[index].1
        savepoints.removeSubrange((index + 1)...)
      case 3, 4: #expect(try transaction.delete(key) == (model.removeValue(forKey: key) != nil))
      default:
        try transaction.put(key, [value])
        model[key] = value
      }
      #expect(try transaction.get(key)?.bytes.first == model[key])
    }
  }

  @Test(
    "may be rolled back further from within a nested part, which is rolled back all the same when it throws")
  func furtherBack() throws {
    let store = try Store.create(on: host)
    let large = [UInt8](repeating: 3, count: 100_000)
    try store.transaction { transaction in
      let first = transaction.savepoint()
      try transaction.put("large", large)
      #expect(throws: Refusal.self) {
        try transaction.nested { transaction in
          try transaction.rollBack(to: first)
          try transaction.put("other", [UInt8](repeating: 4, count: 100_000))
          throw Refusal()
        }
      }
      #expect(try transaction.get("large")?.bytes == large)
      #expect(try transaction.get("other") == nil)
      #expect(transaction.pendingBlobs.map(\.hash.bytes) == [SHA256.hash(large)])
      try transaction.put("last", [1])
      try transaction.rollBack(to: first)
    }
    #expect(try store.list().isEmpty)
  }
}

@Suite("A stepwise transaction")
struct OpenTransactionTests {
  let host = SimulatedHost(compacting: .onRequest)

  @Test("is there after its commit, and leaves no trace without one")
  func steps() throws {
    let store = try Store.create(on: host)
    var open = try store.beginTransaction()
    #expect(store.isInTransaction)
    try open.transaction.put("a", [1])
    try open.transaction.put("b", [UInt8](repeating: 1, count: 30_000))
    #expect(try store.get("a") == nil)
    #expect(try open.transaction.get("a")?.bytes == [1])
    #expect(#expect(throws: StoreError.self) { try store.put("c", [1]) }?.code == .busy)
    try open.commit()
    #expect(!store.isInTransaction)
    #expect(try store.list().map(\.key) == ["a", "b"])
    var undone = try store.beginTransaction()
    try undone.transaction.delete("a")
    undone.rollBack()
    do {
      var dropped = try store.beginTransaction()
      try dropped.transaction.delete("b")
    }
    #expect(try store.list().map(\.key) == ["a", "b"])
    try store.put("c", [1])
    try store.transaction { _ in #expect(store.isInTransaction) }
    #expect(!store.isInTransaction)
    host.losePower(seed: 1)
    #expect(try Store.open(on: host).list().map(\.key) == ["a", "b", "c"])
  }

  @Test("blocks other threads until it ends, and they know that it is not theirs")
  func others() throws {
    let store = try Store.create(on: host)
    var open = try store.beginTransaction()
    let finished = Locked(false)
    let isInTransaction = Locked(true)
    let other = Threaded {
      isInTransaction.withLock { $0 = store.isInTransaction }
      try? store.put("k", "other")
      finished.withLock { $0 = true }
    }
    other.start()
    while !store.control.isContended {}
    #expect(!finished.withLock { $0 })
    try open.transaction.put("k", Array("mine".utf8))
    try open.commit()
    other.join()
    #expect(try store.text("k") == "other")
    #expect(!isInTransaction.withLock { $0 })
  }
}

@Suite("A pausable transaction")
struct PausableTransactionTests {
  struct Refusal: Error {}
  let host = SimulatedHost(compacting: .onRequest)
  static let relaxed = Configuration(durability: .relaxed, segmentBytes: 64 << 10)

  @Test("does not pause while no thread waits, and syncs once")
  func alone() throws {
    let store = try Store.create(on: host)
    let syncs = store.syncCount
    var number = 0
    let report = try store.pausableTransaction { transaction in
      try transaction.put(Key("\(number)"), [1])
      #expect(store.isInTransaction)
      number += 1
      return number < 500 ? .next : .done
    }
    #expect(report == PausableReport(steps: 500, pauses: 0))
    #expect(store.syncCount == syncs + 1)
    #expect(try store.list().count == 500)
  }

  @Test("pauses for a waiting writer, which reads whole steps")
  func pauses() throws {
    let store = try Store.create(on: host, configuration: Self.relaxed)
    let seen = Locked<[Int64]>([])
    let other = Threaded {
      for _ in 0..<5 {
        try? store.transaction { transaction in
          let (left, right) = (
            try transaction.get("left", as: Int64.self) ?? 0,
            try transaction.get("right", as: Int64.self) ?? 0
          )
          if left != right { Issue.record("half of a step: \(left), \(right)") }
          seen.withLock { $0.append(left) }
        }
      }
    }
    var number: Int64 = 0
    let report = try store.pausableTransaction { transaction in
      number += 1
      if number == 1 { other.start() }
      try transaction.put("left", number)
      try transaction.put("right", number)
      // Bounded, in case it never yields.
      return seen.withLock { $0.count } < 5 && number < 200_000 ? .next : .done
    }
    other.join()
    #expect(number < 200_000)
    #expect(report.pauses >= 1)
    #expect(report.steps == Int(number))
    #expect(seen.withLock { $0 } == seen.withLock { $0.sorted() })
    #expect(try store.get("left", as: Int64.self) == number)
  }

  @Test("keeps the steps before one that throws, and nothing of that one")
  func throwing() throws {
    let store = try Store.create(on: host)
    var number = 0
    #expect(throws: Refusal.self) {
      try store.pausableTransaction { transaction in
        try transaction.put(Key("\(number)"), [1])
        number += 1
        if number == 4 { throw Refusal() }
        return .next
      }
    }
    #expect(try store.list().map(\.key) == ["0", "1", "2"])
    #expect(!store.isInTransaction)
    host.losePower(seed: 5)
    #expect(try Store.open(on: host).list().map(\.key) == ["0", "1", "2"])
  }

  @Test("keeps whole steps after a loss of power in the middle", arguments: 0..<12 as Range<UInt64>)
  func crash(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed, compacting: .onRequest)
    let store = try Store.create(on: host, configuration: Self.relaxed)
    var number: Int64 = 0
    _ = try? store.pausableTransaction { transaction in
      number += 1
      for part in 0..<3 { try transaction.put(Key("\(part)"), number) }
      try transaction.put(Key("step \(number)"), [UInt8](repeating: 1, count: 200))
      guard number < 200 else {
        host.losePower(seed: seed)
        throw Refusal()
      }
      return .next
    }
    let again = try Store.open(on: host, configuration: Self.relaxed)
    let values = try (0..<3).map { try again.get(Key("\($0)"), as: Int64.self) ?? 0 }
    #expect(Set(values).count == 1)
    #expect(values[0] < 200)
    #expect(try again.list(KeyRange(prefix: "step ")).count == Int(values[0]))
    #expect(try again.verify().isClean)
  }
}

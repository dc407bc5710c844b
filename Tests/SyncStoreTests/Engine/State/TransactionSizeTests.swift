import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("The fill level of a transaction") struct TransactionSizeTests {
  let host = SimulatedHost(compacting: .onRequest)

  @Test("is reported as it is written, and is rolled back with it")
  func reported() throws {
    let store = try Store.create(on: host)
    try store.transaction { transaction in
      #expect(transaction.size.records == 0 && transaction.size.bytes == 0)
      #expect(transaction.size.limit == Limits.transactionBytes)
      try transaction.put("a", [UInt8](repeating: 1, count: 1000))
      let one = transaction.size
      #expect(one.records == 1)
      #expect(one.bytes > 1000 && one.bytes < 1400)
      let place = transaction.savepoint()
      // Twice the same key, one with a deadline: each is a record.
      try transaction.put("b", [1])
      try transaction.put("b", [2], expiration: .after(.hour))
      #expect(transaction.size.records == 3)
      try transaction.rollBack(to: place)
      #expect(transaction.size == one)
      // Of a large value only the reference is in the journal.
      try transaction.put("large", [UInt8](repeating: 1, count: 1 << 20))
      #expect(transaction.size.bytes - one.bytes < 1000)
    }
  }

  @Test("bounds it: a full one is followed by the next, and all writes are there")
  func bounded() throws {
    let store = try Store.create(on: host)
    // Many small ones, too: overhead added per record at commit must not make it refuse accepted writes.
    for (size, count, expected) in [(15_000, 1000, 3), (10, 200_000, 3)] {
      let value = [UInt8](repeating: 7, count: size)
      var (next, transactions) = (0, 0)
      while next < count {
        try store.transaction { transaction in
          while next < count, transaction.size.bytes + size + 200 <= transaction.size.limit {
            try transaction.put(Key("\(size)/\(next)"), value)
            next += 1
          }
          #expect(transaction.size.records > 0)
        }
        transactions += 1
      }
      #expect(transactions == expected)
      #expect(try store.list(prefix: Array("\(size)/".utf8)).count == count)
    }
  }

  @Test(
    "is unchanged by a write that did not fit: the transaction continues without it, and skips no sequence"
  )
  func refused() throws {
    let store = try Store.create(on: host)
    try store.put("first", [1])
    let (large, late) = ([UInt8](repeating: 1, count: 20_000), [UInt8](repeating: 1, count: 20_400))
    try store.transaction { transaction in
      var number = 0
      while transaction.size.bytes + late.count <= transaction.size.limit {
        try transaction.put(Key("\(number)"), large)
        number += 1
      }
      // Both write paths: with the record encoded at once, and later.
      let full = transaction.size
      for _ in 0..<3 {
        let one = #expect(throws: StoreError.self) {
          try transaction.put("late", late, expiration: .after(.hour))
        }
        #expect(one?.code == .outOfBounds)
        #expect(throws: StoreError.self) { try transaction.put("late", late) }
      }
      #expect(transaction.size == full)
      try transaction.put("small", [1], expiration: .after(.hour))
    }
    try store.put("last", [1])
    #expect(try store.get("late") == nil)
    #expect(try store.get("small")?.bytes == [1])
    let sequences = try store.log(from: 0, limit: 1000).map(\.dot.sequence)
    #expect(sequences == Array(1...UInt64(sequences.count)))
    #expect(try store.verify().isClean)
  }
}

import Foundation
import Synchronization

/// The timed loops, in nanoseconds per operation unless stated. Keys are made before the clock starts.
extension KeyValuePeer {
  /// First put of each key into an empty store, one by one.
  func fill(_ corpus: Corpus) throws -> Double {
    let names = try Self.names(of: corpus).fill
    let value = Payload.first
    return try Machine.nanoseconds(each: names.count) { for name in names { try put(name, value) } }
  }

  /// Two more puts of each key, in two orders.
  func overwrite(_ corpus: Corpus) throws -> Double {
    let names = try Self.names(of: corpus)
    let value = Payload.second
    return try Machine.nanoseconds(each: 2 * corpus.count) {
      for name in names.read { try put(name, value) }
      for name in names.fill { try put(name, value) }
    }
  }

  /// First put of each key into an empty store, `size` per transaction.
  func transactions(_ corpus: Corpus, each size: Int) throws -> Double {
    let names = try Self.names(of: corpus).fill
    let value = Payload.first
    return try Machine.nanoseconds(each: names.count) {
      for start in stride(from: 0, to: names.count, by: size) {
        try put(names[start..<min(start + size, names.count)], value)
      }
    }
  }

  /// Gets each key, copied, in an order different from that of the puts.
  func copyAll(_ corpus: Corpus) throws -> Double {
    let names = try Self.names(of: corpus).read
    let reader = try makeReader()
    defer { reader.finish() }
    var found = 0
    let time = try Machine.nanoseconds(each: names.count) { found = try Self.copy(names, reader) }
    try expect(found, names.count, "get")
    return time
  }

  /// Gets each key in place; nil if the engine's interface cannot.
  func touchAll(_ corpus: Corpus) throws -> Double? {
    guard Reader.readsInPlace else { return nil }
    let names = try Self.names(of: corpus).read
    let reader = try makeReader()
    defer { reader.finish() }
    var (found, sum) = (0, 0)
    let time = try Machine.nanoseconds(each: names.count) {
      for name in names {
        guard let result = try reader.touch(name) else { continue }
        (found, sum) = (found &+ 1, sum &+ result)
      }
    }
    Machine.keep(sum)
    try expect(found, names.count, "get in place")
    return time
  }

  /// Gets absent keys.
  func missAll(_ corpus: Corpus) throws -> Double {
    let names = try Self.names(of: corpus).miss
    let reader = try makeReader()
    defer { reader.finish() }
    var found = 0
    let time = try Machine.nanoseconds(each: names.count) { found = try Self.copy(names, reader) }
    try expect(found, 0, "miss")
    return time
  }

  /// Scans all keys and values in order.
  @discardableResult
  func scanAll(_ count: Int) throws -> Double {
    let reader = try makeReader()
    defer { reader.finish() }
    var (found, sum) = (0, 0)
    let time = try Machine.nanoseconds(each: count) { (found, sum) = try reader.scan() }
    Machine.keep(sum)
    try expect(found, count, "scan")
    return time
  }

  /// Gets on that many threads, each with separate keys, while another thread puts at that rate. Returns
  /// total gets per second.
  func copyAll(_ corpus: Corpus, threads: Int, putsPerSecond: Int) throws -> Double {
    let names = try Self.names(of: corpus)
    // Half of the keys for each thread, whatever their number: each does the same work. Separate arrays, so
    // that the threads share no reference counts.
    let each = names.read.count / 2
    let slices = (0..<threads).map { Array(names.read[($0 * each)..<(($0 + 1) * each)]) }
    let written = Array(names.fill.prefix(100_000))
    let writer: @Sendable (() -> Bool) throws -> Void = { isOver in
      try self.put(written, perSecond: putsPerSecond, until: isOver)
    }
    let seconds = try Threads.run(threads, with: putsPerSecond > 0 ? writer : nil) { number, gate in
      let reader = try self.makeReader()
      defer { reader.finish() }
      gate.wait()
      try expect(try Self.copy(slices[number], reader), each, "get on several threads")
    }
    return Double(threads * each) / seconds
  }

  /// Puts at that rate, in bursts a millisecond apart.
  private func put(_ names: [Name], perSecond rate: Int, until isOver: () -> Bool) throws {
    let value = Payload.second.map { $0 }
    let (start, burst) = (Machine.now(), max(rate / 1000, 1))
    var written = 0
    while !isOver() {
      for _ in 0..<burst {
        try put(names[written % names.count], value)
        written += 1
      }
      let due = start + UInt64(written) * 1_000_000_000 / UInt64(rate)
      let now = Machine.now()
      if due > now { usleep(UInt32((due - now) / 1000)) }
    }
  }

  /// Puts on that many threads, `each` per thread. Returns total puts per second.
  func putAll(_ corpus: Corpus, threads: Int, each: Int) throws -> Double {
    let fill = try Self.names(of: corpus).fill
    let slices = (0..<threads).map { number in (0..<each).map { fill[(number * each + $0) % fill.count] } }
    let seconds = try Threads.run(threads) { number, gate in
      let value = Payload.first.map { $0 }
      gate.wait()
      for name in slices[number] { try self.put(name, value) }
    }
    return Double(threads * each) / seconds
  }

  private static func copy(_ names: [Name], _ reader: Reader) throws -> Int {
    var (found, sum) = (0, 0)
    for name in names {
      guard let value = try reader.copy(name) else { continue }
      (found, sum) = (found &+ 1, sum &+ Int(value[value.count - 1]))
    }
    Machine.keep(sum)
    return found
  }
}

/// Passes that generate keys on the fly, for processes that must not hold millions of them.
extension KeyValuePeer {
  /// Gets one existing key: an engine that opens lazily does its work now.
  func firstGet(_ index: Int) throws {
    let reader = try makeReader()
    defer { reader.finish() }
    try expect(try reader.copy(try Self.name(KeyPattern.scattered.key(index))) == nil ? 0 : 1, 1, "first get")
  }

  /// Puts the keys of these numbers, `size` per transaction, or one by one if that is 1.
  func load(_ range: Range<Int>, _ pattern: KeyPattern, each size: Int) throws {
    let value = Payload.first
    guard size > 1 else {
      for index in range { try put(try Self.name(pattern.key(index)), value) }
      return
    }
    for start in stride(from: range.lowerBound, to: range.upperBound, by: size) {
      let names = try (start..<min(start + size, range.upperBound)).map { try Self.name(pattern.key($0)) }
      try put(names[...], value)
    }
  }

  /// Puts the keys of these numbers one by one, timing each.
  func load(_ range: Range<Int>, timedBy histogram: inout Histogram) throws {
    let value = Payload.first
    for index in range {
      let name = try Self.name(KeyPattern.scattered.key(index))
      let start = Machine.now()
      try put(name, value)
      histogram.add(Machine.now() - start)
    }
  }

  /// Gets the keys of these numbers.
  func readAll(_ range: Range<Int>) throws {
    let reader = try makeReader()
    defer { reader.finish() }
    var (found, sum) = (0, 0)
    for index in range {
      guard let value = try reader.copy(try Self.name(KeyPattern.scattered.key(index))) else { continue }
      (found, sum) = (found &+ 1, sum &+ value.count)
    }
    Machine.keep(sum)
    try expect(found, range.count, "read all")
  }
}

/// A workload that did not do its work has no time.
func expect(_ found: Int, _ expected: Int, _ workload: String) throws {
  guard found == expected else {
    throw BenchmarkError("\(workload): \(found) keys found, expected \(expected)")
  }
}

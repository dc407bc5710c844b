import Foundation
import SyncStore

/// Overhead of typed values over bytes. Both sides use separate stores and alternate every few thousand
/// operations, so that disturbances of the machine affect both.
extension Bench {
  /// Five properties, typical of services.
  private struct Reading: Codable, Identifiable, Sendable {
    var id: Int
    var sensor: String
    var value: Double
    var isValid: Bool
    var time: Int64

    init(_ number: Int) {
      (id, sensor, value) = (number, "sensor-\(number % 1000)", Double(number) * 0.37)
      (isValid, time) = (number % 7 != 0, 1_700_000_000_000 + Int64(number))
    }
  }

  private static let turn = 2000

  func typedValues() throws {
    let count = min(options.keys, 200_000)
    let readings = (0..<count).map(Reading.init)
    try compare("typed-struct", readings) {
      try EncodedValue($0)
    } put: {
      try $0.put($1, $2)
    } get: {
      try $0.get($1, as: Reading.self).map { Int($0.time & 1) + 1 }
    }
    try compare("typed-int", Array(0..<count)) {
      try EncodedValue($0)
    } put: {
      try $0.put($1, $2)
    } get: {
      try $0.get($1, as: Int.self).map { $0 & 1 + 1 }
    }
    try compare("typed-bool", (0..<count).map { $0 % 3 == 0 }) {
      try EncodedValue($0)
    } put: {
      try $0.put($1, $2)
    } get: {
      try $0.get($1, as: Bool.self).map { $0 ? 2 : 1 }
    }
    try collections(readings)
  }

  /// A store for each side, and the keys.
  private func sides(_ purpose: String) throws -> (bytes: Store, typed: Store, folders: [String]) {
    let folders = try ["bytes", "typed"].map { try folder($0, purpose) }
    Machine.settle()
    let stores = try folders.map {
      try Store.create(at: $0, configuration: Configuration(durability: .relaxed))
    }
    return (stores[0], stores[1], folders)
  }

  @inline(__always)
  private func compare<Value>(
    _ workload: String, _ values: [Value], _ encode: (Value) throws -> EncodedValue,
    put: (Store, Key, Value) throws -> Void, get: (Store, Key) throws -> Int?
  ) throws {
    let sides = try sides(workload)
    defer { sides.folders.forEach(remove) }
    let keys = try (0..<values.count).map { try Corpus.key(KeyPattern.scattered.key($0)) }
    let forms = try values.map(encode)
    try turns(workload + "-put", values.count) { range in
      for index in range { try sides.bytes.put(keys[index], forms[index].bytes, type: forms[index].type) }
    } typed: { range in
      for index in range { try put(sides.typed, keys[index], values[index]) }
    }
    var (found, sum) = (0, 0)
    try turns(workload + "-get", values.count) { range in
      for index in range {
        guard let value = try sides.bytes.get(keys[index]) else { continue }
        (found, sum) = (found + 1, sum &+ value.bytes.count)
      }
    } typed: { range in
      for index in range {
        guard let value = try get(sides.typed, keys[index]) else { continue }
        (found, sum) = (found + 1, sum &+ value)
      }
    }
    Machine.keep(sum)
    try expect(found, 2 * values.count, workload)
    try sides.bytes.close()
    try sides.typed.close()
  }

  /// Compared with bytes, and with the same structure put under a prepared key: the overhead of a collection.
  private func collections(_ readings: [Reading]) throws {
    let forms = try readings.map { try EncodedValue($0) }
    try collections(readings, against: "bytes") { store, key, index in
      try store.put(key, forms[index].bytes, type: forms[index].type)
    }
    try collections(readings, against: "typed put") { store, key, index in
      try store.put(key, readings[index])
    }
  }

  @inline(__always)
  private func collections(
    _ readings: [Reading], against peer: String, _ put: (Store, Key, Int) throws -> Void
  ) throws {
    let sides = try sides("collection")
    defer { sides.folders.forEach(remove) }
    let collection = try sides.typed.collection("readings", of: Reading.self)
    let keys = try readings.map { try collection.key(of: $0.id) }
    let puts: (Range<Int>) throws -> Void = { range in
      for index in range { try put(sides.bytes, keys[index], index) }
    }
    try turns("collection-insert", readings.count, against: peer, puts) { range in
      for index in range { try collection.insert(readings[index]) }
    }
    try turns("collection-replace", readings.count, against: peer, puts) { range in
      for index in range { try collection.insertOrReplace(readings[index]) }
    }
    try expect(try collection.count, readings.count, "collection")
    try sides.bytes.close()
    try sides.typed.close()
  }

  /// Lets both sides alternate, and records the time per operation of each.
  @inline(__always)
  private func turns(
    _ workload: String, _ count: Int, against peer: String = "bytes", _ bytes: (Range<Int>) throws -> Void,
    typed: (Range<Int>) throws -> Void
  ) throws {
    var times = (bytes: 0.0, typed: 0.0)
    for (turn, start) in stride(from: 0, to: count, by: Self.turn).enumerated() {
      let range = start..<min(start + Self.turn, count)
      func timeBytes() throws { times.bytes += try Machine.nanoseconds(each: 1) { try bytes(range) } }
      if turn.isMultiple(of: 2) { try timeBytes() }
      times.typed += try Machine.nanoseconds(each: 1) { try typed(range) }
      if !turn.isMultiple(of: 2) { try timeBytes() }
    }
    report.add(workload, SyncStorePeer.title, times.typed / Double(count), "ns")
    report.add(workload, peer, times.bytes / Double(count), "ns")
  }
}

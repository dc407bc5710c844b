import DemoSupport
import SyncStore

/// A sensor reading.
struct Reading: Codable {
  /// Time, in milliseconds since 1970.
  var time: UInt64
  var celsius: Double
}

/// The readings of one site: `readings/SITE/NUMBER`, numbered from 1 without gaps, and `last/SITE`, the last
/// number.
///
/// Each site writes its own keys, so that copies never conflict.
struct SensorLog {
  let store: Store
  let site: String
  /// Retention of readings in milliseconds, on every copy.
  var retention: UInt64

  /// Adds readings atomically and durably; returns the number of the last one. A restart continues after it,
  /// because the number is part of the same transaction.
  func append(_ readings: [Reading]) throws -> Int {
    try store.transaction(durability: .full) { transaction in
      var last = try transaction.get(Key("last/" + site), default: 0)
      for reading in readings {
        last += 1
        try transaction.put(key(last), reading, expiration: .at(reading.time + retention))
      }
      try transaction.put(Key("last/" + site), last)
      return last
    }
  }

  /// The number of the last reading; 0 if there is none.
  var last: Int { get throws { try store.get(Key("last/" + site), default: 0) } }

  /// The numbers of the existing readings, in order.
  var numbers: [Int] {
    get throws {
      try store.list(KeyRange(prefix: prefix)).compactMap { entry in
        Int(entry.key.description.dropFirst(prefix.count))
      }
    }
  }

  /// The mean of the last readings.
  func mean(last count: Int) throws -> Double? {
    let readings = try store.values(of: Reading.self, prefix: prefix, reversed: true, limit: count)
    let values = readings.map(\.value.celsius)
    return values.isEmpty ? nil : values.reduce(0, +) / Double(values.count)
  }

  private var prefix: String { "readings/\(site)/" }

  /// Leading zeros: keys are ordered by their bytes.
  private func key(_ number: Int) throws -> Key {
    let digits = String(number)
    return try Key(prefix + String(repeating: "0", count: 10 - digits.count) + digits)
  }
}

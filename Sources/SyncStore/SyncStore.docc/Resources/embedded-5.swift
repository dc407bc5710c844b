import SyncStore

struct Reading: Codable {
  var celsius: Double
  var humidity: Double?
}

@main
struct Logger {
  /// `cellar/0000000042`
  static func key(_ sensor: String, _ number: Int) throws -> Key {
    let digits = String(number)
    return try Key(sensor + "/" + String(repeating: "0", count: 10 - digits.count) + digits)
  }

  /// Adds readings after the last one, all or none. They stay for a week.
  static func log(_ readings: [Reading], of sensor: String, in store: Store) throws {
    try store.transaction { transaction in
      var last = try transaction.get(Key("last/" + sensor), default: 0)
      for reading in readings {
        last += 1
        try transaction.put(key(sensor, last), reading, expiration: .after(.week))
      }
      try transaction.put(Key("last/" + sensor), last)
    }
  }

  /// The mean of the last readings of a sensor.
  static func mean(of sensor: String, last count: Int, in store: Store) throws -> Double {
    let keys = try store.list(KeyRange(prefix: sensor + "/"), reversed: true, limit: count).map(\.key)
    let readings = try keys.compactMap { try store.get($0, as: Reading.self)?.celsius }
    return readings.isEmpty ? 0 : readings.reduce(0, +) / Double(readings.count)
  }

  static func main() throws {
    let store = try Store.openOrCreate(at: "readings")
    try log((0..<100).map { Reading(celsius: 12 + Double($0) / 100) }, of: "cellar", in: store)
    print(try store.get("last/cellar", default: 0), try mean(of: "cellar", last: 10, in: store))
    try store.close()
  }
}

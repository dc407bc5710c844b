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

  /// Adds readings after the last one, all or none.
  static func log(_ readings: [Reading], of sensor: String, in store: Store) throws {
    try store.transaction { transaction in
      var last = try transaction.get(Key("last/" + sensor), default: 0)
      for reading in readings {
        last += 1
        try transaction.put(key(sensor, last), reading)
      }
      try transaction.put(Key("last/" + sensor), last)
    }
  }

  static func main() throws {
    let store = try Store.openOrCreate(at: "readings")
    try log((0..<100).map { Reading(celsius: 12 + Double($0) / 100) }, of: "cellar", in: store)
    print(try store.get("last/cellar", default: 0))
    try store.close()
  }
}

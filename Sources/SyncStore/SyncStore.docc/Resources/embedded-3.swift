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

  static func main() throws {
    let store = try Store.openOrCreate(at: "readings")
    try store.put(key("cellar", 1), Reading(celsius: 12.5, humidity: 0.7))
    if let reading = try store.get(key("cellar", 1), as: Reading.self) { print(reading) }
    try store.close()
  }
}

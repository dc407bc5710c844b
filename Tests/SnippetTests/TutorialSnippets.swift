import FoundationEssentials
import SyncStore
import Testing

/// The programs of the tutorials, each step in its own namespace, equal to their files.
private struct Embedded1 {
  // snippet
  struct Logger {
    static func main() throws {
      let store = try Store.create(at: here + "readings")
      try store.put("temperature", 21.5)
      print(try store.get("temperature", default: 0.0))
      try store.close()
    }
  }
  // end
}

private struct Embedded2 {
  // snippet
  struct Logger {
    static func main() throws {
      let store = try Store.openOrCreate(at: here + "readings")
      try store.put("temperature", 21.5)
      print(try store.get("temperature", default: 0.0))
      try store.close()
    }
  }
  // end
}

private struct Embedded3 {
  // snippet
  struct Reading: Codable {
    var celsius: Double
    var humidity: Double?
  }

  struct Logger {
    /// `cellar/0000000042`
    static func key(_ sensor: String, _ number: Int) throws -> Key {
      let digits = String(number)
      return try Key(sensor + "/" + String(repeating: "0", count: 10 - digits.count) + digits)
    }

    static func main() throws {
      let store = try Store.openOrCreate(at: here + "readings")
      try store.put(key("cellar", 1), Reading(celsius: 12.5, humidity: 0.7))
      if let reading = try store.get(key("cellar", 1), as: Reading.self) { print(reading) }
      try store.close()
    }
  }
  // end
}

private struct Embedded4 {
  // snippet
  struct Reading: Codable {
    var celsius: Double
    var humidity: Double?
  }

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
      let store = try Store.openOrCreate(at: here + "readings")
      try log((0..<100).map { Reading(celsius: 12 + Double($0) / 100) }, of: "cellar", in: store)
      print(try store.get("last/cellar", default: 0))
      try store.close()
    }
  }
  // end
}

private struct Embedded5 {
  // snippet
  struct Reading: Codable {
    var celsius: Double
    var humidity: Double?
  }

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
      let store = try Store.openOrCreate(at: here + "readings")
      try log((0..<100).map { Reading(celsius: 12 + Double($0) / 100) }, of: "cellar", in: store)
      print(try store.get("last/cellar", default: 0), try mean(of: "cellar", last: 10, in: store))
      try store.close()
    }
  }
  // end
}

private struct Service5 {
  // snippet
  struct Service {
    static func main() throws {
      let store = try Store.open(at: here + "shared", configuration: Configuration(mode: .shared))
      try store.put("price/apples", 1.2)
      for entry in try store.list(KeyRange(prefix: "order/")) {
        print(entry.key, try store.get(entry.key, as: String.self) ?? "")
      }
      try store.close()
    }
  }
  // end
}

/// Directory of the stores of the tutorials' programs.
private enum Place {
  @TaskLocal static var path = ""
}

private var here: String { Place.path }

@Suite struct TutorialSnippets {
  @Test("each step of the logger runs on the data of the previous one")
  func logger() throws {
    let scratch = Scratch()
    try Place.$path.withValue(scratch.path + "/") {
      try Embedded1.Logger.main()
      #expect(throws: StoreError.self) { try Embedded1.Logger.main() }
      try Embedded2.Logger.main()
      try Embedded3.Logger.main()
      try Embedded4.Logger.main()
      try Embedded5.Logger.main()
      let store = try Store.open(at: here + "readings")
      #expect(try store.get("last/cellar", default: 0) == 200)
      #expect(try store.list(KeyRange(prefix: "cellar/")).count == 200)
      #expect(try store.entry("cellar/0000000200")?.deadline != nil)
      #expect(abs(try Embedded5.Logger.mean(of: "cellar", last: 10, in: store) - 12.945) < 1e-9)
      try store.close()
    }
  }

  @Test("the service writes and reads while the daemon runs")
  func service() throws {
    let scratch = Scratch()
    try Place.$path.withValue(scratch.path + "/") {
      let store = try Store.create(at: here + "shared", configuration: Configuration(mode: .shared))
      try store.put("order/1", "3 apples")
      try store.close()
      try Service5.Service.main()
      let again = try Store.open(at: here + "shared")
      #expect(try again.get("price/apples", default: 0.0) == 1.2)
      try again.close()
    }
  }
}

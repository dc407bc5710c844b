import SyncStore
import Testing

/// The code of `SnapshotsAndScans.md`. `GuideTests` checks that both are equal.
@Suite struct SnapshotsAndScansSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.create(at: here + "store")
    for number in 1...5 { try store.put(Key("sensor/\(number)"), "\(number * 11)") }
    // snippet
    let sensors = KeyRange(prefix: "sensor/")
    let firstHalf = KeyRange("a"..<"m")
    let fromM = KeyRange("m"...)
    // end
    #expect(firstHalf.contains("b"))
    #expect(!fromM.contains("b"))
    // snippet
    var bytes = 0
    try store.scan(sensors) { key, value in
      bytes += value.byteCount
    }
    // end
    #expect(bytes == 10)
    // snippet
    var newest: [Int] = []
    try store.scan(sensors, reversed: true, limit: 3) { key, value in
      newest.append(value.byteCount)
    }
    try store.scan(sensors) { key, value in
      value.byteCount > 100 ? .stop : .next
    }
    // end
    #expect(newest == [2, 2, 2])
    // snippet
    try store.scan(sensors) { key, value, details in
      print(details.type, details.stamp.milliseconds)
    }
    // end
    // snippet
    var last: Key?
    repeat {
      last = try store.scanEntries(sensors, after: last, limit: 1000) { entry in
        print(entry.key, entry.size)
      }
    } while last != nil
    // end
    #expect(last == nil)
    // snippet
    let first = try store.withValue("sensor/1") { value in
      value.byteCount > 0 ? unsafe value.unsafeLoad(as: UInt8.self) : 0
    }
    // end
    #expect(first == 0x31)
    // snippet
    let snapshot = try store.snapshot()
    try store.put("sensor/1", "99")
    print(try snapshot.get("sensor/1", as: String.self) ?? "none")  // what it was
    snapshot.close()
    // end
    #expect(throws: StoreError.self) { try snapshot.get("sensor/1") }
    #expect(try store.get("sensor/1", as: String.self) == "99")
    try store.close()
  }
}

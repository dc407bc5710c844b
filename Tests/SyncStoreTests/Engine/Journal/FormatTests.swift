import SyncTestSupport
import Testing

@testable import SyncStore

/// Stores of other versions of the format.
@Suite("A store of another format")
struct FormatTests {
  static let segment = "/store/journal/0000000000000001.segment"
  let host = SimulatedHost()

  /// Sets one of the feature words in both copies of a segment's header, with valid checksums.
  func setFeature(at offset: Int, of path: String = FormatTests.segment) throws {
    let file = try host.storage.open(path, .readWrite)
    var page = try file.read(SegmentHeader.length, at: 0)
    for copy in SegmentHeader.copies {
      page[copy + offset] |= 0x80
      let checksum = XXH3.hash64(Array(page[copy..<(copy + SegmentHeader.encodedLength - 8)]), seed: 0)
      for place in 0..<8 {
        page[copy + SegmentHeader.encodedLength - 8 + place] = UInt8(
          truncatingIfNeeded: checksum >> UInt64(8 * place))
      }
    }
    try file.write(page, at: 0)
    try file.sync()
  }

  func filled() throws {
    let store = try Store.create(on: host)
    try store.put("k", "v")
    try store.close()
    host.killProcesses()
  }

  @Test(
    "F101 with unknown read-compatible features is opened read-only, and not otherwise",
    arguments: [true, false])
  func readOnlyCompatible(isBesideReader: Bool) throws {
    try filled()
    try setFeature(at: 16)
    let before = try host.storage.files(below: "/store/journal")
    var reader: Store?
    if isBesideReader {
      reader = try Store.openSecond(on: host, configuration: Configuration(mode: .readOnly))
    }
    for mode in [Configuration.Mode.exclusive, .shared] where mode == .shared || !isBesideReader {
      let error = #expect(throws: StoreError.self) {
        try Store.open(on: host, configuration: Configuration(mode: mode))
      }
      #expect(error?.code == .newerFormat)
      #expect(error?.message.contains("open the store for reading only") == true)
    }
    #expect(try host.storage.files(below: "/store/journal") == before)
    let store = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(try store.text("k") == "v")
    #expect(try store.list().count == 1)
    #expect(throws: StoreError.self) { try store.put("k", "w") }
    #expect(try reader?.text("k") ?? "v" == "v")
    #expect(try host.storage.files(below: "/store/journal") == before)
  }

  @Test("F100 with unknown incompatible features is refused, also read-only, and left unchanged")
  func incompatible() throws {
    try filled()
    try setFeature(at: 12)
    let before = try host.storage.files(below: "/store/journal")
    for mode in [Configuration.Mode.exclusive, .shared, .readOnly] {
      let error = #expect(throws: StoreError.self) {
        try Store.open(on: host, configuration: Configuration(mode: mode))
      }
      #expect(error?.code == .newerFormat)
      #expect(error?.message.contains("update it") == true)
    }
    #expect(try host.storage.files(below: "/store/journal") == before)
  }

  @Test("F101 with unknown compatible features is opened as usual")
  func compatible() throws {
    try filled()
    try setFeature(at: 20)
    let store = try Store.open(on: host)
    try store.put("k", "w")
    #expect(try store.text("k") == "w")
  }

  /// There is only one format so far. These tests protect a later upgrade: opening a store never changes
  /// existing segments, so a new format starts with a new segment, and a partial upgrade is still a store of
  /// the old format.
  @Test(
    "F102 killed or failing at any call of its opening, keeps its segments, and opens as usual",
    arguments: [true, false])
  func upgradeInterrupted(forever: Bool) throws {
    var number = 1
    var finished = false
    while !finished {
      let host = SimulatedHost(seed: UInt64(number))
      let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
      let store = try Store.create(on: host, configuration: small)
      for key in 0..<40 { try store.put(Key("\(key)"), [UInt8](repeating: 7, count: 4000)) }
      try store.sync()
      host.losePower(seed: UInt64(number))
      let segments = try host.storage.files(below: "/store/journal").filter { $0.key.hasSuffix(".segment") }
      let plan = FaultPlan()
      plan.fail(number: number, forever: forever)
      let opened = try? Store.open(on: host, configuration: small, failing: plan)
      finished = opened != nil && plan.calls < number
      host.killProcesses()
      let after = try host.storage.files(below: "/store/journal")
      for (path, bytes) in segments { #expect(after[path] == bytes, "call \(number), \(path)") }
      let again = try Store.open(on: host, configuration: small)
      #expect(try again.status().keys == 40, "call \(number)")
      number += 1
    }
    #expect(number > 10)
  }
}

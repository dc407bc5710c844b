import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Conflicts with a damaged losing value")
struct DamagedConflictTests {
  @Test("list the other values, and report the error of the damaged one (F37)")
  func listed() throws {
    let host = SimulatedHost(encrypted: false)
    let configuration = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
    let store = try Store.create(on: host, configuration: configuration)
    let other = try Store.create(on: SimulatedHost(seed: 9, machine: "other"), id: store.id)
    for number in 0..<5 {
      try store.put(Key("key \(number)"), Array("beaten \(number)".utf8))
      try other.put(Key("key \(number)"), Array("winner \(number)".utf8))
    }
    try store.receive(from: other)
    #expect(try store.conflicts().count == 5)

    let path = "/store/journal/0000000000000001.segment"
    let bytes = try host.storage.open(path, .readOnly).read(64 << 10, at: 0)
    // The value as it was put, and again as it was kept when it was beaten.
    let places = bytes.ranges(of: Array("beaten 3".utf8))
    let place = try #require(places.last?.lowerBound)
    try host.storage.flipBit(of: path, at: place, bit: 2)
    var errors: [StoreError] = []
    let left = try store.conflicts { errors.append($0) }
    #expect(left.count == 4 && !left.contains { $0.value == Array("beaten 3".utf8) })
    #expect(errors.map(\.code) == [.damaged])
    #expect(try store.conflicts().count == 4)
  }
}

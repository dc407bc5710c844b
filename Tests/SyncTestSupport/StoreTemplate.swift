import Replication
import SyncStore

/// The disk of a small store on a simulated machine, and every value ever written to its keys.
struct StoreTemplate: Sendable {
  private let origin: SimulatedHost
  private(set) var files: [String: [UInt8]] = [:]
  private(set) var names: [String] = []
  private(set) var written: [Key: [[UInt8]]] = [:]

  static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)

  /// `isLong` adds more segments (one compacted), deadlines, an identity and removed packed values.
  init(encrypted: Bool, isLong: Bool = false) throws {
    origin = SimulatedHost(encrypted: encrypted)
    let store = try Store.create(on: origin, configuration: Self.configuration)
    for number in 0..<16 {
      let key = try Key("key \(number % 10)")
      let value =
        Array("value \(number)".utf8) + [UInt8](repeating: 7, count: number == 5 ? 3000 : number * 9)
      written[key, default: []].append(value)
      try store.put(key, value)
    }
    try store.transaction { transaction in
      try transaction.delete("key 9")
      try transaction.put("key 8", "last")
    }
    written["key 8", default: []].append(Array("last".utf8))
    try StoreKeys(store).replaceGroupKeys(with: GroupKeyRing(key: [UInt8](repeating: 3, count: 32)))
    if isLong { try lengthen(store) }
    try store.close()
    origin.killProcesses()
    files = try origin.storage.files(below: "/store")
    names = files.keys.sorted()
  }

  private mutating func lengthen(_ store: Store) throws {
    for number in 0..<60 {
      let key = try Key("long \(number % 7)")
      let value = [UInt8](repeating: UInt8(number), count: number % 20 == 0 ? 2500 : 1900)
      written[key, default: []].append(value)
      try store.put(key, value, expiration: number % 3 == 0 ? .at(origin.time + 1_000_000) : nil)
      if number == 45 { try store.compact() }
    }
    _ = try StoreKeys(store).makeIdentity()
  }

  /// A private clone of the machine: the files keep their inodes, so that state tied to inodes stays trusted.
  func machine() throws -> SimulatedHost { try origin.cloned() }
}

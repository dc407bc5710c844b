private import Replication
private import SyncStore

extension ForeignBytes {
  /// Two version vectors in sequence. Each must round-trip, and comparing and merging them must match a
  /// per-actor computation. Inputs of some lengths are also used as another member's frontier; not all,
  /// because a store costs more than a thousand vectors.
  package static func vectors(_ bytes: [UInt8]) {
    var reader = ByteReader(bytes)
    if let one = try? reader.readVector() {
      comesBack(one)
      var other = VersionVector()
      if let second = try? reader.readVector() {
        comesBack(second)
        other = second
      }
      compare(one, other)
      compare(other, one)
    }
    if bytes.count.isMultiple(of: 16) { tellStore(bytes) }
  }

  private static func comesBack(_ vector: VersionVector) {
    var writer = ByteWriter()
    writer.write(vector)
    var reader = ByteReader(writer.bytes)
    let again = try? reader.readVector()
    precondition(again == vector && reader.remaining == 0, "a vector does not come back: \(vector)")
  }

  private static func compare(_ one: VersionVector, _ other: VersionVector) {
    let actors = Set(one.actors).union(other.actors)
    let higher = actors.filter { other[$0] > one[$0] }
    precondition(one.covers(other) == higher.isEmpty, "\(one) covers \(other)?")
    let beyond = other.beyond(one)
    precondition(Set(beyond.actors) == higher, "\(other) beyond \(one): \(beyond)")
    precondition(higher.allSatisfy { beyond[$0] == other[$0] }, "\(other) beyond \(one): \(beyond)")
    var merged = one
    merged.merge(other)
    precondition(Set(merged.actors) == actors, "\(one) merged with \(other): \(merged)")
    precondition(
      actors.allSatisfy { merged[$0] == max(one[$0], other[$0]) }, "\(one) merged with \(other): \(merged)")
    for actor in actors { merged[actor] = 0 }
    precondition(merged.isEmpty, "left when all actors are forgotten: \(merged)")
  }

  /// Stores a member's frontier, which a purge then reads.
  private static func tellStore(_ bytes: [UInt8]) {
    let host = SimulatedHost(encrypted: false)
    do {
      let store = try Store.create(on: host, configuration: StoreTemplate.configuration)
      try store.put("key", "value")
      try store.delete("key")
      guard let device = DeviceID(bytes: [UInt8](repeating: 1, count: 32)) else { return }
      try store.putReserved(ReservedKey.frontier(device), Array(bytes.prefix(60_000)))
      _ = try store.purge()
      let isGone = try store.get("key") == nil
      precondition(isGone, "what was deleted is back")
      try store.close()
      _ = try Store.open(on: host).verify()
    } catch { preconditionFailure("what a member says fails the store: \(error)") }
  }
}

package import SyncStore

/// Copies of one store on separate machines, holding the same values including large ones.
package struct TestMembers {
  /// The copies.
  package let stores: [Store]
  /// Their machines.
  package let hosts: [SimulatedHost]

  /// `count` copies of the content that `write` puts into the first one.
  package init(
    _ count: Int, encrypted: Bool = false, configuration: Configuration = Configuration(blobThreshold: 1000),
    _ write: (Store) throws -> Void
  ) throws {
    hosts = (0..<count).map { _ in SimulatedHost(encrypted: encrypted) }
    let first = try Store.create(on: hosts[0], configuration: configuration)
    try write(first)
    stores =
      try [first]
      + hosts.dropFirst().map { try Store.create(on: $0, id: first.id, configuration: configuration) }
    for other in stores.dropFirst() { try Self.bring(first, to: other) }
  }

  /// The name under which other copies record this one.
  package static func name(_ member: Int) -> [UInt8] { [UInt8](repeating: UInt8(member + 1), count: 32) }

  /// Sends all changes of one copy to another, including the large values it requests.
  package static func bring(_ sender: Store, to receiver: Store) throws {
    try receiver.receive(from: sender)
    for blob in try receiver.missingBlobs() where try sender.blobs.has(blob) {
      _ = try receiver.blobs.put(bytes: sender.blobs.read(blob), durable: true)
    }
    _ = try receiver.missingBlobs()
  }

  /// Asks other copies about eviction candidates as a session would: which members hold each one and promise
  /// not to sweep it.
  package func holders(of candidates: [EvictionCandidate], by members: [Int]) throws -> [[[UInt8]]] {
    var holders = candidates.map { _ in [[UInt8]]() }
    for member in members {
      guard let said = try stores[member].holdings(of: candidates.map(\.blob)) else { continue }
      for (index, candidate) in candidates.enumerated() where said.held[index] {
        guard candidate.dots.allSatisfy({ said.covered[$0.actor] >= $0.sequence }) else { continue }
        holders[index].append(Self.name(member))
      }
    }
    return holders
  }

  /// One complete eviction pass of a copy, with all others asked.
  @discardableResult
  package func trim(_ member: Int, to limits: BlobLimits) throws -> BlobTrimReport {
    guard let turn = try stores[member].beginEviction(limits) else { return BlobTrimReport() }
    while true {
      let batch = try turn.next()
      if batch.isEmpty { return turn.end() }
      try turn.evict(batch, heldBy: holders(of: batch, by: stores.indices.filter { $0 != member }))
    }
  }
}

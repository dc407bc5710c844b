import SyncTestSupport
import Testing

@testable import SyncStore

/// What a copy learns at the handshake about large values that have not arrived.
@Suite("Large values that are missing at the handshake") struct MissingBlobsTests {
  /// A store that lacks the bytes of a few values.
  private static func store() throws -> (store: Store, missing: [BlobReference]) {
    let host = SimulatedHost()
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, blobThreshold: 1000))
    var missing: [BlobReference] = []
    for number in 0..<3 as Range<UInt8> {
      try store.put(Key("\(number)"), [UInt8](repeating: number, count: 3000))
      let blob = try #require(try store.entry(Key("\(number)"))?.blob)
      try store.blobs.remove(blob.hash)
      try store.want(blob)
      missing.append(blob)
    }
    return (store, missing.sorted { $0.hash < $1.hash })
  }

  @Test("The journal is scanned once for references to them, as long as they do not change")
  func once() throws {
    let (store, missing) = try Self.store()
    #expect(try store.blobsToFetch().blobs == missing)
    // A scan of the journal first makes all of it durable.
    store.control.setPoisoned()
    #expect(try store.blobsToFetch().blobs == missing)
    #expect(throws: StoreError.self) { try store.pruneAbsenceRecords() }
  }

  @Test("Concurrent writes count: a value that is no longer referenced is not requested")
  func anew() throws {
    let (store, missing) = try Self.store()
    #expect(try store.blobsToFetch().blobs.count == 3)
    try store.delete(Key("1"))
    let left = try store.blobsToFetch().blobs.map(\.hash)
    let gone = BlobHash(bytes: SHA256.hash([UInt8](repeating: 1, count: 3000)))
    #expect(left == missing.map(\.hash).filter { $0 != gone } && left.count == 2)
  }
}

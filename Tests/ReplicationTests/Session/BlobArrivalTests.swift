import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

@Suite("Received large values") struct BlobArrivalTests {
  @Test
  func
    `are durable when the session is told, and those with a wrong hash are not kept (F10, F72, F85)`()
    throws
  {
    let host = SimulatedHost()
    let store = try Store.create(on: host, configuration: Configuration(durability: .relaxed))
    let ring = try StoreKeys(store).makeGroupKeys()
    let sender = try store.actor
    let values = (1...3 as ClosedRange<UInt8>).map { [UInt8](repeating: $0, count: 3000) }
    let hashes = values.map { BlobHash(bytes: SHA256.hash($0))! }
    let ranges = try zip(hashes, [values[0], values[1], values[0]]).map { hash, bytes in
      BlobRange(
        hash: hash, offset: 0, isLast: true,
        encrypted: try BatchCodec.encrypt(
          bytes, as: .blobRange(store: store.id, sender: sender, offset: 0), keys: ring,
          randomness: SecureRandom.bytes(BatchCodec.randomnessBytes)))
    }
    let answer = SessionStore(store).answer(.storeBlobs(ranges, sizes: [3000, 3000, 3000]), peer: sender)
    #expect(answer == .blobsStored([true, true, false]))
    host.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    let again = try Store.open(on: host)
    #expect(try hashes.map { try again.blobs.has($0) } == [true, true, false])
    #expect(try again.blobs.read(BlobReference(hash: hashes[1], size: 3000)) == values[1])
  }

  @Test
  func
    `poison the store if they cannot be made durable, and arrive after it is opened again (F30)`()
    throws
  {
    let host = SimulatedHost()
    try Store.create(on: host).close()
    let plan = FaultPlan()
    let store = try Store.open(on: host, failing: plan)
    let ring = try StoreKeys(store).makeGroupKeys()
    let sender = try store.actor
    let value = [UInt8](repeating: 7, count: 3000)
    let hash = try #require(BlobHash(bytes: SHA256.hash(value)))
    func arrive(in store: Store) throws -> SessionEvent? {
      let sealed = try BatchCodec.encrypt(
        value, as: .blobRange(store: store.id, sender: sender, offset: 0), keys: ring,
        randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
      let range = BlobRange(hash: hash, offset: 0, isLast: true, encrypted: sealed)
      return SessionStore(store).answer(.storeBlobs([range], sizes: [3000]), peer: sender)
    }
    plan.fail(.sync, on: ".pack")
    #expect(try arrive(in: store) != .blobsStored([true]))
    #expect(#expect(throws: StoreError.self) { try store.checkSyncs() }?.code == .poisoned)
    try? store.close()
    let again = try Store.open(on: host)
    #expect(try arrive(in: again) == .blobsStored([true]))
    #expect(try again.blobs.read(BlobReference(hash: hash, size: 3000)) == value)
  }
}

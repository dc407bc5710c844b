import SyncTestSupport
import Testing

@testable import SyncStore

@Suite struct BlobTransferTests {
  private func reference(_ bytes: [UInt8]) -> BlobReference {
    BlobReference(hash: BlobHash(sha256: SHA256.hash(bytes)), size: UInt64(bytes.count))
  }

  @Test(
    "A transfer resumes at the byte where it stopped, also after a restart",
    arguments: StorageUnderTest.Kind.allCases)
  func resume(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let bytes = pattern(700_000)
    let blob = reference(bytes)
    var random = SplitMix64(seed: 5)
    var blobs = try test.open()
    while true {
      let offset = try blobs.partialSize(blob.hash)
      if offset == blob.size { break }
      let end = min(Int(offset) + 1 + Int(random.next() % 100_000), bytes.count)
      try blobs.append(Array(bytes[Int(offset)..<end]), to: blob.hash, at: offset)
      if random.chance(30) { blobs = try test.open() }
      #expect(try !blobs.has(blob))
    }
    try blobs.complete(blob, durable: true)
    #expect(try blobs.read(blob) == bytes)
    #expect(try blobs.partialSize(blob.hash) == 0)
    #expect(try test.names() == [BlobFiles.object(blob.hash)])
    try blobs.complete(blob, durable: true)
  }

  @Test(
    "Writeback of a large transfer starts as it arrives, encrypted or not, and one sync ends it",
    arguments: [false, true])
  func writing(_ isSealed: Bool) throws {
    let test = try BlobsUnderTest(.disk)
    let calls = Locked<[StorageCall]>([])
    let plan = FaultPlan { call, path in
      if path.contains("partial/"), call == .beginSync || call == .sync { calls.withLock { $0.append(call) } }
    }
    let blobs = try test.open(
      FaultingStorage(test.base.storage, plan: plan), keys: isSealed ? try KeysUnderTest().source : .none)
    let bytes = pattern(2 * BlobStore.writebackBytes + 5)
    let blob = reference(bytes)
    for start in stride(from: 0, to: bytes.count, by: 4 << 20) {
      let part = Array(bytes[start..<min(start + 4 << 20, bytes.count)])
      try blobs.append(part, to: blob.hash, at: UInt64(start))
    }
    #expect(calls.withLock { $0 } == [.beginSync, .beginSync])
    try blobs.complete(blob, durable: true)
    #expect(calls.withLock { $0 } == [.beginSync, .beginSync, .sync])
    #expect(try blobs.read(blob) == bytes)
  }

  @Test("Bytes at another offset than the next one are refused", arguments: StorageUnderTest.Kind.allCases)
  func offsets(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    defer { withExtendedLifetime(test) {} }
    let blob = reference([1, 2, 3])
    for (offset, end) in [(1, 0), (0, 2), (1, 2), (3, 2), (0, 2)] as [(UInt64, UInt64)] {
      if end > 0, try blobs.partialSize(blob.hash) == 0 { try blobs.append([1, 2], to: blob.hash, at: 0) }
      let error = #expect(throws: StoreError.self) { try blobs.append([3], to: blob.hash, at: offset) }
      #expect(error?.code == .outOfBounds)
      #expect(try blobs.partialSize(blob.hash) == end)
    }
    let short = #expect(throws: StoreError.self) { try blobs.complete(blob, durable: true) }
    #expect(short?.code == .outOfBounds)
    try blobs.append([3], to: blob.hash, at: 2)
    try blobs.complete(blob, durable: false)
    #expect(try blobs.read(blob) == [1, 2, 3])
    let huge = #expect(throws: StoreError.self) { try blobs.append([1], to: blob.hash, at: Limits.blobBytes) }
    #expect(huge?.code == .outOfBounds)
  }

  @Test(
    "Bytes that do not match their hash are discarded before the rename (F85)",
    arguments: StorageUnderTest.Kind.allCases, [true, false])
  func mismatch(_ kind: StorageUnderTest.Kind, _ restarted: Bool) throws {
    let test = try BlobsUnderTest(kind)
    let blob = reference([1, 2, 3])
    for wrong in [[1, 2, 4], [1, 2, 3, 4]] as [[UInt8]] {
      var blobs = try test.open()
      try blobs.append(wrong, to: blob.hash, at: 0)
      if restarted { blobs = try test.open() }
      let error = #expect(throws: StoreError.self) { try blobs.complete(blob, durable: true) }
      #expect(error?.code == .damaged)
      #expect(try test.names() == [])
      #expect(try !blobs.has(blob))
      #expect(try blobs.partialSize(blob.hash) == 0)
    }
    let blobs = try test.open()
    try blobs.append([1, 2, 3], to: blob.hash, at: 0)
    try blobs.complete(blob, durable: true)
    #expect(try blobs.read(blob) == [1, 2, 3])
  }

  @Test("An empty blob completes without a byte", arguments: StorageUnderTest.Kind.allCases)
  func empty(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    defer { withExtendedLifetime(test) {} }
    try blobs.complete(reference([]), durable: true)
    #expect(try blobs.read(reference([])) == [])
  }

  @Test(
    "Two stores on one directory continue each other's transfer", arguments: StorageUnderTest.Kind.allCases)
  func shared(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let (first, second) = (try test.open(), try test.open())
    let bytes = pattern(40_000)
    let blob = reference(bytes)
    try first.append(Array(bytes[..<10_000]), to: blob.hash, at: 0)
    try second.append(Array(bytes[10_000..<30_000]), to: blob.hash, at: 10_000)
    #expect(throws: StoreError.self) { try first.append([1], to: blob.hash, at: 10_000) }
    try first.append(Array(bytes[30_000...]), to: blob.hash, at: 30_000)
    try second.complete(blob, durable: true)
    try first.complete(blob, durable: true)
    #expect(try first.read(blob) == bytes)
    // The file that `first` has open is the object now: a new transfer must not write into it.
    try second.remove(blob.hash)
    try first.append([9], to: blob.hash, at: 0)
    #expect(try first.partialSize(blob.hash) == 1)
    try second.discardPartial(blob.hash)
    #expect(try first.partialSize(blob.hash) == 0)
    try first.append(bytes, to: blob.hash, at: 0)
    try first.complete(blob, durable: true)
    #expect(try second.read(blob) == bytes)
  }

  @Test(
    "After a loss of power a transfer completes or is discarded, and is never wrong (F85)",
    arguments: 0..<40 as Range<UInt64>)
  func powerLoss(_ seed: UInt64) throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = try #require(test.base.storage as? SimulatedStorage)
    var blobs = try test.open()
    try storage.syncDirectory("/")
    try storage.syncDirectory("/volume")
    let bytes = pattern(60_000, seed: seed)
    let blob = reference(bytes)
    var random = SplitMix64(seed: seed)
    for _ in 0..<200 where try !blobs.has(blob) {
      let offset = Int(try blobs.partialSize(blob.hash))
      if offset < bytes.count {
        let end = min(offset + 7000, bytes.count)
        try blobs.append(Array(bytes[offset..<end]), to: blob.hash, at: UInt64(offset))
      } else {
        try? blobs.complete(blob, durable: true)
      }
      if random.chance(5) {
        storage.crash(seed: random.next())
        blobs = try test.open()
      }
    }
    #expect(try blobs.read(blob) == bytes, "seed \(seed)")
    storage.crash(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    #expect(try test.open().read(blob) == bytes, "seed \(seed)")
  }
}

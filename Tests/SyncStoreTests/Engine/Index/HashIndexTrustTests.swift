import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("An opened hash index")
struct HashIndexTrustTests {
  var test: IndexUnderTest

  init() throws {
    test = try IndexUnderTest()
    for number in 0..<1000 { try test.insert(IndexUnderTest.hash(number), UInt64(number) + 1) }
    test.directory.setApplied(4096)
  }

  private func holds(_ opening: HashIndex.OpenResult) throws -> Bool {
    guard let directory = opening.trusted else { return false }
    return try IndexUnderTest.holds(directory, test.expected) && directory.applied == 4096
  }

  @Test("is trusted after every process was killed, in the same boot")
  func killed() throws {
    test.storage.killProcesses()
    #expect(try holds(test.reopen()))
  }

  @Test(
    "is not trusted after a loss of power, whatever reached the disk",
    arguments: 1...8 as ClosedRange<UInt64>)
  func powerLoss(seed: UInt64) throws {
    test.storage.crash(seed: seed)
    if case .trusted = try test.reopen(boot: 78) { Issue.record("it was believed, seed \(seed)") }
  }

  @Test("is trusted in another boot if it was closed, also when nothing else reached the disk")
  func closed() throws {
    try test.directory.close()
    test.storage.crash(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    #expect(try holds(test.reopen(boot: 78)))
    #expect(try holds(test.reopen(boot: 0)))
  }

  @Test("is not trusted once it was written to after a clean close", arguments: 1...8 as ClosedRange<UInt64>)
  func closedAndOpened(seed: UInt64) throws {
    try test.directory.close()
    let again = try #require(try test.reopen().trusted)
    try again.beginWriting()
    try again.insert(IndexUnderTest.hash(5000), 9)
    test.storage.crash(seed: seed)
    #expect(try test.reopen(boot: 78).reason == "it was in use when the machine stopped")
  }

  @Test("is not trusted if the boot is unknown")
  func unknownBoot() throws {
    var identity = IndexUnderTest.identity
    identity.boot = 0
    let directory = try HashIndex.create(at: "/other", test.storage, identity: identity)
    try directory.install(at: "/other", test.storage)
    let opening = try HashIndex.open(
      at: "/other", test.storage, store: IndexUnderTest.store, boot: 0, writable: true)
    #expect(opening.reason != nil)
  }

  @Test("is not trusted in a copied directory, closed or not", arguments: [true, false])
  func copied(isClosed: Bool) throws {
    if isClosed { try test.directory.close() }
    _ = try test.storage.createDirectory("/from")
    try test.storage.rename(IndexUnderTest.path, to: "/from/index")
    try test.storage.copyTree(from: "/from", to: "/to")
    let opening = try HashIndex.open(
      at: "/to/index", test.storage, store: IndexUnderTest.store, boot: IndexUnderTest.boot, writable: true)
    #expect(opening.reason == "it is a copy")
  }

  @Test("is not trusted by another store, nor if it is truncated")
  func foreign() throws {
    let opening = try HashIndex.open(
      at: IndexUnderTest.path, test.storage, store: StoreID(high: 9, low: 9), boot: IndexUnderTest.boot,
      writable: true)
    #expect(opening.reason == "it is of another store")
    for size in [0, 100, 4096, 65_535] {
      try test.storage.open(IndexUnderTest.path, .readWrite).resize(to: size)
      #expect(try test.reopen().reason != nil)
    }
    _ = try test.storage.remove(IndexUnderTest.path)
    if case .missing = try test.reopen() {} else { Issue.record("something is still there") }
  }

  @Test("is refused if a newer program wrote it (F100)")
  func newer() throws {
    let file = try test.storage.open(IndexUnderTest.path, .readWrite)
    for field in [
      IndexLayout.Header.version, IndexLayout.Header.readerFeatures, IndexLayout.Header.writerFeatures,
    ] {
      var bytes = try file.read(IndexLayout.Header.fixedLength, at: 0)
      let old = bytes
      bytes[field] += 2
      var writer = ByteWriter()
      writer.write(XXH3.hash64(Array(bytes[..<IndexLayout.Header.checksum]), seed: 0))
      bytes.replaceSubrange(IndexLayout.Header.checksum..., with: writer.bytes)
      try file.write(bytes, at: 0)
      #expect(#expect(throws: StoreError.self) { try test.reopen() }?.code == .newerFormat)
      try file.write(old, at: 0)
    }
    #expect(try holds(test.reopen()))
  }

  @Test("tells which processes still map a replaced file")
  func retired() throws {
    let reader = try #require(try test.reopen(writable: false).trusted)
    let new = try HashIndex.create(
      at: IndexUnderTest.path, test.storage, identity: IndexUnderTest.identity)
    #expect(try reader.find(IndexUnderTest.hash(0)) { _ in true } == 1)
    try new.install(at: IndexUnderTest.path, test.storage)
    #expect(reader.isRetired)
    #expect(#expect(throws: StoreError.self) { try reader.find(1) { _ in true } }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try test.directory.insert(1, 1) }?.code == .closed)
    let again = try #require(try test.reopen(writable: false).trusted)
    #expect(try again.find(IndexUnderTest.hash(0)) { _ in true } == nil)
  }

  @Test("keys its hash with the secret it was created with")
  func secret() throws {
    let again = try #require(try test.reopen(writable: false).trusted)
    #expect(again.secret == IndexUnderTest.secret)
    let key: [UInt8] = [1, 2, 3]
    let memory = Mapping.anonymous(3)
    memory.store(key, at: 0)
    let hash = memory.withBytes(0..<3) { again.hash($0) }
    #expect(hash == XXH3.hash64(key, seed: 0x0807_0605_0403_0201))
    #expect(hash == memory.withBytes(0..<3) { test.directory.hash($0) })
  }

  @Test(
    "is not trusted if the pages that it would allocate next are past its end",
    arguments: [
      (IndexLayout.Header.frontier, 1 << 20), (IndexLayout.Header.spare, 1 << 20 | (1 << 20 + 1) << 24),
    ] as [(Int, UInt64)])
  func nextPages(field: Int, pages: UInt64) throws {
    try test.write(CheckedWord.encode(pages), at: field)
    #expect(try test.reopen().reason == "its header is damaged")
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A damaged hash index")
struct HashIndexDamageTests {
  static let keys = 290
  let test: IndexUnderTest
  let clean: [UInt8]

  init() throws {
    var test = try IndexUnderTest()
    for number in 0..<Self.keys { try test.insert(IndexUnderTest.hash(number), UInt64(number) << 20 | 1) }
    self.test = test
    clean = try test.image()
  }

  /// Whether the damage is detected, or every answer stays right nevertheless. The caller compares keys, so
  /// it never receives a record of another key.
  private func isNoticedOrHarmless() throws -> Bool {
    do {
      guard let directory = try test.reopen().trusted else { return true }
      for (hash, place) in test.expected where try directory.find(hash, { $0 == place }) != place {
        return false
      }
      for number in Self.keys..<Self.keys + 20 {
        if try directory.find(IndexUnderTest.hash(number), { _ in false }) != nil { return false }
      }
      return true
    } catch let error as StoreError {
      return error.code == .damaged || error.code == .newerFormat
    }
  }

  private func throwsDamage(_ directory: HashIndex?) -> Bool {
    do {
      try directory?.verify()
      return false
    } catch { return error.code == .damaged }
  }

  @Test("is detected, whichever bit of its header is flipped (F42)")
  func headerBits() throws {
    for offset in 0..<IndexLayout.Header.parts + 8 {
      for bit in 0..<8 {
        try test.storage.flipBit(of: IndexUnderTest.path, at: offset, bit: bit)
        #expect(try isNoticedOrHarmless(), "bit \(bit) of byte \(offset)")
        try test.storage.flipBit(of: IndexUnderTest.path, at: offset, bit: bit)
      }
    }
    #expect(try test.reopen().trusted != nil)
  }

  @Test("is detected, whichever bit of a slot or of the directory is flipped (F42)")
  func slotBits() throws {
    let directory = try #require(try test.reopen(writable: false).trusted)
    for offset in 64..<4096 {
      let bit = offset % 8
      let position = 2 * 4096 + offset
      try test.storage.flipBit(of: IndexUnderTest.path, at: position, bit: bit)
      let isSlot = offset < IndexLayout.Page.extras
      if isSlot {
        let home = (offset - 64) / 64
        var isNoticed = false
        for (hash, place) in test.expected where HashParts(hash).bucket == home {
          do {
            let found = try directory.find(hash) { $0 == place }
            #expect(found == place, "bit \(bit) of byte \(offset) hides a key")
          } catch { isNoticed = error.code == .damaged }
        }
        let isHome = test.expected.keys.contains { HashParts($0).bucket == home }
        #expect(isNoticed || !isHome, "bit \(bit) of byte \(offset)")
      }
      try test.storage.flipBit(of: IndexUnderTest.path, at: position, bit: bit)
    }
    for offset in 4096..<4100 {
      for bit in 0..<8 {
        try test.storage.flipBit(of: IndexUnderTest.path, at: offset, bit: bit)
        #expect(throws: StoreError.self) { try directory.find(IndexUnderTest.hash(0)) { _ in true } }
        try test.storage.flipBit(of: IndexUnderTest.path, at: offset, bit: bit)
      }
    }
    try directory.verify()
  }

  @Test("is detected by a split, or harmless, when a bit next to a slot is flipped (F42)")
  func extraBits() throws {
    for offset in stride(from: IndexLayout.Page.extras, to: IndexLayout.Page.extras + 800, by: 7) {
      try test.restore(clean)
      try test.storage.flipBit(of: IndexUnderTest.path, at: 2 * 4096 + offset, bit: offset % 8)
      let directory = try #require(try test.reopen().trusted)
      try directory.beginWriting()
      var expected = test.expected
      do {
        for number in Self.keys..<Self.keys + 30 {
          try directory.insert(IndexUnderTest.hash(number), UInt64(number) << 20 | 1)
          expected[IndexUnderTest.hash(number)] = UInt64(number) << 20 | 1
        }
        #expect(try IndexUnderTest.holds(directory, expected), "byte \(offset)")
      } catch let error as StoreError {
        #expect(error.code == .damaged, "byte \(offset)")
      }
    }
  }

  @Test("is detected when a page, or a part of one, is zeros (F42)", arguments: [64, 512, 4096])
  func zeros(count: Int) throws {
    for start in stride(from: 4096, to: 3 * 4096, by: count) {
      try test.restore(clean)
      let file = try test.storage.open(IndexUnderTest.path, .readWrite)
      try file.write([UInt8](repeating: 0, count: count), at: start)
      let directory = try test.reopen().trusted
      #expect(try isNoticedOrHarmless(), "\(count) bytes at \(start)")
      #expect(start < 8192 || throwsDamage(directory), "\(count) bytes at \(start)")
    }
  }

  @Test("is detected when a directory doubling names pages past the end of the file")
  func doubledPastEnd() throws {
    let size = try test.directory.fileBytes
    try test.write(CheckedWord.encode(1 << 20), at: IndexLayout.Header.operand)
    try test.write(Intent.deepen(11).word, at: IndexLayout.Header.intent)
    let again = try #require(try test.reopen().trusted)
    try again.beginWriting()
    #expect(#expect(throws: StoreError.self) { try again.recoverIntent() }?.code == .damaged)
    #expect(try again.fileBytes == size)
  }

  @Test("is detected when a page's overflow chain has a cycle", arguments: [1, 2])
  func endlessPage(next: UInt64) throws {
    // All keys have one page: the lowest bits of the hashes do not distinguish them, and it may not be split.
    var test = try IndexUnderTest(maximumDepth: 1)
    for number in 0..<2 * IndexLayout.slots + 20 {
      try test.insert(IndexUnderTest.hash(number) & ~1, UInt64(number) << 20 | 1)
    }
    #expect(try test.isAsExpected())
    let entry = try test.directory.entry(0)
    let first = try test.directory.page(entry.load())
    let page = try test.directory.pages.page(first)
    #expect(try test.directory.overflow(page, first) != nil)
    page.store(
      CheckedWord.encode(next == 1 ? UInt64(first) - 1 : UInt64(first)), at: IndexLayout.Page.overflow)
    for key in 0..<50 {
      let (hash, place) = (IndexUnderTest.hash(key) & ~1, UInt64(key) << 20 | 1)
      // Keys of the page itself are found; a lookup that continues beyond it gets the error.
      if let found = try? test.directory.find(hash, { $0 == place }) { #expect(found == place) }
    }
    let absent = IndexUnderTest.hash(5000) & ~1
    let directory = test.directory
    #expect(#expect(throws: StoreError.self) { try directory.find(absent) { _ in false } }?.code == .damaged)
    #expect(#expect(throws: StoreError.self) { try directory.insert(absent, 3) }?.code == .damaged)
    #expect(#expect(throws: StoreError.self) { _ = try directory.remove(absent, 3) }?.code == .damaged)
    #expect(throwsDamage(directory))
  }

  @Test("is detected when a key is removed from an index whose count is zero")
  func noKeys() throws {
    try test.write(CheckedWord.encode(0), at: IndexLayout.Header.count)
    let again = try #require(try test.reopen().trusted)
    try again.beginWriting()
    let (hash, place) = try #require(test.expected.first)
    #expect(#expect(throws: StoreError.self) { _ = try again.remove(hash, place) }?.code == .damaged)
    #expect(try again.find(hash) { $0 == place } == place)
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

/// A process can die at each store that another process can see: the file's image at that moment is kept, and
/// later completed by another process.
@Suite("A hash index whose writer died")
struct HashIndexWriterDeathTests {
  /// A writer's action, and the state before it.
  enum Work: String, CaseIterable, Sendable {
    case insert, insertIntoFullBuckets, remove, removeAmongPassed, replace, split, splitAndDeepen, overflow
  }

  private func prepared(_ work: Work) throws -> (IndexUnderTest, (HashIndex) throws -> [UInt64: UInt64]) {
    var test = try IndexUnderTest(maximumDepth: work == .overflow ? 0 : 22)
    func fill(_ count: Int, _ hash: (Int) -> UInt64 = IndexUnderTest.hash) throws {
      for number in 0..<count { try test.insert(hash(number), UInt64(number) + 1) }
    }
    // All in the last two buckets, so that keys overflow into the first.
    func crowded(_ number: Int) -> UInt64 {
      UInt64.max << 32 | IndexUnderTest.hash(number) & 0xFFFF_FFFF
    }
    var next = IndexUnderTest.hash(1 << 20)
    switch work {
    case .insert, .replace: try fill(100)
    case .insertIntoFullBuckets, .removeAmongPassed:
      try fill(60, crowded)
      next = crowded(1 << 20)
    case .remove: try fill(250)
    case .split:
      // After the first split the directory need not double for the second page of the pair.
      var number = 0
      while try test.directory.depth() < 2 || !isNextSplitFlat(test, next) {
        try test.insert(IndexUnderTest.hash(number), UInt64(number) + 1)
        number += 1
        next = IndexUnderTest.hash(number)
      }
    case .splitAndDeepen: try fill(300)
    case .overflow: try fill(400)
    }
    let expected = test.expected
    return (
      test,
      { directory in
        var after = expected
        switch work {
        case .remove, .removeAmongPassed:
          // A slot followed by others of its bucket.
          let hash = work == .remove ? IndexUnderTest.hash(3) : crowded(1)
          #expect(try directory.remove(hash, expected[hash] ?? 0))
          after[hash] = nil
        case .replace:
          let hash = IndexUnderTest.hash(7)
          #expect(try directory.replace(hash, 8, with: 5000))
          after[hash] = 5000
        default:
          try directory.insert(next, 1 << 40)
          after[next] = 1 << 40
        }
        return after
      }
    )
  }

  private func isNextSplitFlat(_ test: IndexUnderTest, _ hash: UInt64) throws -> Bool {
    let depth = try test.directory.depth()
    let entry = try test.directory.entry(HashParts(hash).entry(depth: depth)).load()
    let number = try test.directory.page(entry)
    let head = try test.directory.head(of: test.directory.pages.page(number))
    return head.count == IndexLayout.splitAt && head.depth < depth
  }

  @Test("at any step loses and duplicates nothing (F6)", arguments: Work.allCases)
  func anyStep(work: Work) throws {
    let (test, act) = try prepared(work)
    var images: [[UInt8]] = []
    test.directory.observer = { if let image = try? test.image() { images.append(image) } }
    let after = try act(test.directory)
    test.directory.observer = nil
    #expect(try IndexUnderTest.holds(test.directory, after))
    // A replacement is a single store.
    #expect(images.count >= (work == .replace ? 1 : 4))
    for (moment, image) in images.enumerated() {
      try test.restore(image)
      let reader = try #require(try test.reopen(writable: false).trusted)
      // A reader finds everything even before the work was completed.
      for (hash, place) in test.expected where after[hash] == place {
        #expect(try reader.find(hash) { $0 == place } == place, "\(work), moment \(moment)")
      }
      let next = try #require(try test.reopen().trusted)
      try next.beginWriting()
      _ = try next.recoverIntent()
      let before = try IndexUnderTest.holds(next, test.expected)
      #expect(try before || IndexUnderTest.holds(next, after), "\(work), moment \(moment)")
      #expect(try !next.recoverIntent())
      if before { #expect(try act(next) == after) }
      #expect(try IndexUnderTest.holds(next, after), "\(work), moment \(moment), done again")
    }
  }

  @Test(
    "while completing another's work, at any step, loses nothing (F6)",
    arguments: [Work.splitAndDeepen, .remove])
  func twice(work: Work) throws {
    let (test, act) = try prepared(work)
    var images: [[UInt8]] = []
    test.directory.observer = { if let image = try? test.image() { images.append(image) } }
    let after = try act(test.directory)
    for first in stride(from: 0, to: images.count, by: max(1, images.count / 12)) {
      try test.restore(images[first])
      let second = try #require(try test.reopen().trusted)
      try second.beginWriting()
      var later: [[UInt8]] = []
      second.observer = { if let image = try? test.image() { later.append(image) } }
      _ = try second.recoverIntent()
      for moment in stride(from: 0, to: later.count, by: max(1, later.count / 12)) {
        try test.restore(later[moment])
        let third = try #require(try test.reopen().trusted)
        try third.beginWriting()
        _ = try third.recoverIntent()
        let isWhole = try IndexUnderTest.holds(third, test.expected) || IndexUnderTest.holds(third, after)
        #expect(isWhole, "\(work), moments \(first) and \(moment)")
      }
    }
  }

  @Test("while doubling the directory into new pages loses nothing (F6)", arguments: [10, 11])
  func doubling(depth: Int) throws {
    // The next doubling needs a page for its new half, or two, for which the chunk then has no space.
    var test = try IndexUnderTest(expected: 270 << depth)
    #expect(try test.directory.depth() == depth)
    let mask = ~(1 << UInt64(depth) - 1) as UInt64
    for number in 0..<300 { try test.insert(IndexUnderTest.hash(number) & mask, UInt64(number) + 1) }
    #expect(try test.directory.depth() == depth)
    if depth == 11 {
      test.directory.header.store(CheckedWord.encode(4095), at: IndexLayout.Header.frontier)
    }
    var images: [[UInt8]] = []
    let file = test
    test.directory.observer = { if images.count < 7, let image = try? file.image() { images.append(image) } }
    let before = test.expected
    try test.insert(IndexUnderTest.hash(300) & mask, 301)
    test.directory.observer = nil
    #expect(try test.directory.depth() == depth + 1)
    #expect(try test.isAsExpected())
    for image in images {
      try test.restore(image)
      let next = try #require(try test.reopen().trusted)
      try next.beginWriting()
      _ = try next.recoverIntent()
      #expect(try IndexUnderTest.holds(next, before))
      try next.insert(IndexUnderTest.hash(300) & mask, 301)
      #expect(try IndexUnderTest.holds(next, test.expected))
      // Header, directory, pages, its new part, the new page: none lost. The page left in the chunk is used
      // first.
      #expect(try next.checkedWord(IndexLayout.Header.frontier) == (depth == 10 ? 1024 + 4 : 4096 + 2))
      #expect(try next.pages.page(depth == 10 ? 1027 : 4095).load(IndexLayout.Page.head) != 0)
    }
  }
}

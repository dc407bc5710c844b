import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Readers of a hash index concurrent with its writer")
struct HashIndexReaderTests {
  private final class Progress: Sendable {
    /// Keys below it exist permanently.
    let inserted = Atomic<Int>(0)
    let isDone = Atomic<Bool>(false)
  }

  /// Record refs of key `number`, one per version.
  private static func isPlace(_ place: UInt64, of number: Int) -> Bool {
    place & 0xFFFF_FFFF == UInt64(number) + 1
  }

  /// Three keys of one bucket with one tag, in its first three slots; bit 0, that of the first split, is 0, 0
  /// and 1.
  private static let (first, second, third) = (1 << 25 as UInt64, 2 << 25 as UInt64, 3 << 25 | 1 as UInt64)

  private func crowded() throws -> IndexUnderTest {
    var test = try IndexUnderTest()
    try test.insert(Self.first, 1)
    try test.insert(Self.second, 2)
    try test.insert(Self.third, 3)
    return test
  }

  @Test("find a key that a split moves to another page during the lookup")
  func splitDuringLookup() throws {
    var test = try crowded()
    for number in 3..<300 { try test.insert(IndexUnderTest.hash(number), UInt64(number) + 1) }
    let directory = test.directory
    var seen: [UInt64] = []
    let found = try directory.find(Self.third) { place in
      if seen.isEmpty {
        do { try directory.insert(IndexUnderTest.hash(300), 301) } catch { Issue.record(error) }
      }
      seen.append(place)
      return place == 3
    }
    #expect(found == 3)
    #expect(seen.first == 1)
    #expect(try directory.depth() == 1)
  }

  @Test("find a key that moves to an earlier slot during the lookup")
  func moveDuringLookup() throws {
    let directory = try crowded().directory
    var isMoved = false
    let found = try directory.find(Self.third) { place in
      if place == 2, !isMoved {
        isMoved = true
        do { #expect(try directory.remove(Self.first, 1)) } catch { Issue.record(error) }
      }
      return place == 3
    }
    #expect(found == 3)
    #expect(isMoved)
  }

  @Test("never miss an existing key while pages split, and keys move, come and go", arguments: [22, 3])
  func neverMiss(maximumDepth: Int) async throws {
    let test = try IndexUnderTest(maximumDepth: maximumDepth)
    let directory = test.directory
    let other = try #require(try test.reopen(writable: false).trusted)
    let progress = Progress()
    let count = 12_000
    try await withThrowingTaskGroup(of: Void.self) { group in
      for (reader, view) in [(UInt64(1), directory), (2, other)] {
        group.addTask {
          var random = SplitMix64(seed: reader)
          var rounds = 0
          while !progress.isDone.load(ordering: .acquiring) || rounds < 1000 {
            rounds += 1
            // There may be no more threads than readers.
            if rounds % 64 == 0 { await Task.yield() }
            let there = progress.inserted.load(ordering: .acquiring)
            guard there > 0 else {
              await Task.yield()
              continue
            }
            // The newest are about to be moved by a split.
            let number =
              random.chance(50)
              ? there - 1 - Int(random.next() % UInt64(min(there, 300))) : Int(random.next() % UInt64(there))
            let found = try view.find(IndexUnderTest.hash(number)) { Self.isPlace($0, of: number) }
            if found == nil { Issue.record("reader \(reader) missed key \(number) of \(there)") }
            let absent = 1_000_000 + number
            let none = try view.find(IndexUnderTest.hash(absent)) { Self.isPlace($0, of: absent) }
            if let none { #expect(none >> 32 == 1) }
          }
        }
      }
      group.addTask {
        defer { progress.isDone.store(true, ordering: .releasing) }
        for number in 0..<count {
          if number % 64 == 0 { await Task.yield() }
          try directory.insert(IndexUnderTest.hash(number), UInt64(number) + 1)
          progress.inserted.store(number + 1, ordering: .releasing)
          // Some come and go, and make others move within their bucket.
          let passing = 1_000_000 + number
          try directory.insert(IndexUnderTest.hash(passing), UInt64(passing) + 1 | 1 << 32)
          if number >= 50 {
            let gone = passing - 50
            #expect(try directory.remove(IndexUnderTest.hash(gone), UInt64(gone) + 1 | 1 << 32))
          }
          if number % 3 == 0, number > 10 {
            let moved = number - 10
            #expect(
              try directory.replace(
                IndexUnderTest.hash(moved), UInt64(moved) + 1, with: UInt64(moved) + 1 | 2 << 32))
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try directory.count == count + 50)
    try directory.verify()
  }
}

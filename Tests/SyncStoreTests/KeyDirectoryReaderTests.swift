import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Readers of a key directory beside its writer")
struct KeyDirectoryReaderTests {
  private final class Progress: Sendable {
    /// Keys below it are there for good.
    let inserted = Atomic<Int>(0)
    let isDone = Atomic<Bool>(false)
  }

  /// Places that stand for key `number`, in whichever version.
  private static func isPlace(_ place: UInt64, of number: Int) -> Bool {
    place & 0xFFFF_FFFF == UInt64(number) + 1
  }

  @Test("never miss a key that is there, while pages split, keys move, come and go", arguments: [22, 3])
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
            // The newest are those that are about to be split away.
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
          // Some that come and go, and make others move within their bucket.
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

import Testing

@testable import SyncStore

@Suite("A compaction plan")
struct CompactionPlanTests {
  typealias Candidate = CompactionPlan.Candidate
  static let mebibyte = 1 << 20

  static func sealed(_ shares: [Double], megabytes: Int = 8) -> [Candidate] {
    shares.enumerated().map { index, share in
      Candidate(
        fileBytes: megabytes * mebibyte, liveBytes: Int(share * Double(megabytes * mebibyte)),
        basePosition: UInt64(index) * 1000)
    }
  }

  static func run(_ candidates: [Candidate], thorough: Bool = false, position: UInt64 = 100_000) -> Range<
    Int
  >? {
    CompactionPlan(candidates, largestSegment: 8 * mebibyte, position: position, isThorough: thorough)?.run
  }

  @Test("waits until dead bytes are half of the live ones, unless asked to be thorough")
  func threshold() {
    #expect(Self.run([]) == nil)
    #expect(Self.run(Self.sealed([0.99, 0.9, 0.8])) == nil)
    #expect(Self.run(Self.sealed([0.99, 0.9, 0.8]), thorough: true) == 2..<3)
    #expect(Self.run(Self.sealed([0.9, 0.1, 0.9])) == 1..<2)
    #expect(Self.run(Self.sealed([1, 1, 1]), thorough: true) == nil)
  }

  @Test("includes neighbours as long as the live records fit in one segment")
  func neighbours() {
    #expect(Self.run(Self.sealed([0.2, 0.2, 0.2, 0.2])) == 0..<4)
    #expect(Self.run(Self.sealed([0.5, 0.1, 0.45, 0.5])) == 1..<3)
    #expect(Self.run(Self.sealed([0.9, 0, 0, 0.9])) == 1..<3)
  }

  @Test("skips a small segment with a larger dead share that would not free a page")
  func small() {
    var candidates = Self.sealed([0.6, 0.5, 0.6])
    // As left by a compaction of segments in which everything was deleted.
    candidates[0] = Candidate(fileBytes: 8192, liveBytes: 120, basePosition: 0)
    #expect(candidates[0].deadBytes < CompactionPlan.minGainBytes)
    #expect(Self.run(candidates)?.contains(1) == true)
    #expect(Self.run(Array(candidates[...0]), thorough: true) == nil)
  }

  @Test("skips segments that are damaged or were not worth compacting")
  func ineligible() {
    var candidates = Self.sealed([0.1, 0.1, 0.1])
    candidates[1].isEligible = false
    #expect(Self.run(candidates) == 0..<1)
    for index in candidates.indices { candidates[index].isEligible = false }
    #expect(Self.run(candidates, thorough: true) == nil)
  }

  @Test("keeps positions within 32 bits of the base")
  func positions() {
    var candidates = Self.sealed([0.1, 0.1, 0.1])
    candidates[2].basePosition = 1 << 32
    #expect(Self.run(candidates, position: 1 << 33) == 0..<1)
    candidates[2].basePosition = (1 << 32) - 2
    #expect(Self.run(candidates, position: 1 << 32 + 5) == 0..<2)
  }

  @Test("includes at most a fixed number of files")
  func longest() {
    let candidates = (0..<200).map {
      Candidate(fileBytes: 64 << 10, liveBytes: 100, basePosition: UInt64($0))
    }
    #expect(Self.run(candidates)?.count == CompactionPlan.maxRunLength)
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

/// A segment's leading definitions are read along with its header, and applied where the index checkpoint
/// says that they count.
@Suite("The actor definition at the start of a segment")
struct LeadingDefinitionTests {
  private let host = SimulatedHost()
  private let store: Store

  init() throws {
    store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    for number in 0..<300 { try store.put(Key("key \(number)"), [UInt8](repeating: 1, count: 1000)) }
  }

  /// All segments except the first, as mapped by an open; each starts with this copy's name.
  private func mapped(isLast: Bool) throws -> [Segment] {
    try store.core.engine.withLock { engine in
      try engine.journal.segments.dropFirst().map { segment in
        try #require(try engine.journal.map(segment.header.name, isLast: isLast))
      }
    }
  }

  @Test("is replayed at both of its locations, and nowhere else")
  func places() throws {
    let length = RecordLayout.actorDefinitionLength
    for segment in try mapped(isLast: false) {
      for offset in [-length, 8, length - 8, 2 * length, 1 << 20] {
        let isDefined = segment.actors.defineLeading(at: SegmentHeader.length + offset)
        #expect(!isDefined)
      }
      let before = segment.actors.nextNumber
      #expect(before == 0)
      for offset in [length, 0] {
        let isDefined = segment.actors.defineLeading(at: SegmentHeader.length + offset)
        #expect(isDefined)
      }
      let actors = segment.actors.all
      #expect(try actors == [store.actor])
    }
  }

  @Test("is looked up where it is in the last segment, which another writer may begin anew")
  func lastSegment() throws {
    for segment in try mapped(isLast: true) {
      let isDefined = segment.actors.defineLeading(at: SegmentHeader.length)
      #expect(!isDefined)
    }
  }

  @Test(
    "is rejected if any of its bits is flipped", arguments: 0..<RecordLayout.actorDefinitionLength)
  func damaged(byte: Int) throws {
    let segment = try #require(try mapped(isLast: false).first)
    try host.storage.flipBit(of: segment.file.path, at: SegmentHeader.length + byte, bit: byte % 8)
    let read = try #require(try mapped(isLast: false).first)
    let isDefined = read.actors.defineLeading(at: SegmentHeader.length)
    #expect(!isDefined)
  }
}

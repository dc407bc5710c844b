import SyncTestSupport
import Testing

@testable import SyncStore

/// Which of two copies wins a key, by what each states of it.
@Suite("A key that differs between two copies")
struct KeyDifferenceTests {
  private let directory = TemporaryDirectory()
  private let store: Store
  private static let other = ActorID(high: 7, low: 7)

  init() throws { store = try Store.create(at: directory.path + "/store") }

  private func record(_ sequence: UInt64, stamp: UInt64, _ content: Record.Content) -> Record {
    Record(
      version: Version(stamp: Stamp(rawValue: stamp), dot: Dot(actor: Self.other, sequence: sequence)),
      key: Array("k".utf8), content: content)
  }

  private func difference(_ theirs: Record?, covered: VersionVector = VersionVector()) throws
    -> KeyDifference?
  {
    let key = Array("k".utf8)
    let scope = RepairScope(time: store.environment.now(), position: .max)
    let found = try store.differences(
      of: [key], from: theirs.map { [key: $0.stated] } ?? [:], covered: covered, scope: scope)
    #expect(found.count <= 1)
    return found.first
  }

  @Test("is won by the greater version, whatever the contents are")
  func versions() throws {
    try store.put(Key("k"), Array("mine".utf8))
    let older = try #require(try difference(record(1, stamp: 1, .inline([1, 2]))))
    #expect(older.winner == .here)
    guard case .value(let value) = older.there else {
      Issue.record("\(older.there)")
      return
    }
    #expect(value.size == 2)
    let newer = try #require(try difference(record(1, stamp: .max - 1, .tombstone)))
    #expect(newer.winner == .there && newer.there == .deleted(Stamp(rawValue: .max - 1)))
  }

  @Test("was purged by the copy that covers it and does not hold it: the delete wins")
  func purged() throws {
    let theirs = record(1, stamp: 5, .inline([1]))
    #expect(try difference(theirs)?.winner == .there)
    try store.put(Key("k"), [9])
    let own = try #require(try store.versionVector().actors.first { $0 != Self.other })
    #expect(try difference(nil)?.winner == .here)
    #expect(try difference(nil, covered: VersionVector([own: .max]))?.winner == .there)
  }

  @Test("is none if both hold the same write, or no value")
  func equal() throws {
    #expect(try difference(nil) == nil)
    #expect(try difference(record(1, stamp: 5, .tombstone)) == nil)
    try store.put(Key("k"), Array("mine".utf8))
    let mine = try store.records(of: [Array("k".utf8)], RepairScope(time: 0, position: .max))
    #expect(try difference(mine[0]) == nil)
  }

  @Test("states an inline value by hash and size, as a large one")
  func statement() {
    let stated = record(1, stamp: 5, .inline(Array("abc".utf8))).stated
    let hash = BlobHash("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    #expect(hash != nil && stated.content == .blob(BlobReference(hash: hash!, size: 3)))
  }
}

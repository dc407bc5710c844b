import SyncTestSupport
import Testing

@testable import SyncStore

/// A copy whose writes no other would accept refuses them, on every path.
@Suite("A copy that may not write")
struct WriteDenialTests {
  private let host = SimulatedHost(seed: 1, time: 1_800_000_000_000, machine: "reader")
  private let other = SimulatedHost(seed: 2, time: 1_800_000_000_000, machine: "member")
  private let store: Store

  init() throws {
    store = try Store.create(on: host, configuration: Configuration(blobThreshold: 1000))
    try store.put("held", "before")
    try store.put("large", [UInt8](repeating: 1, count: 5000))
  }

  private static let ways: [(name: String, write: @Sendable (Store) throws -> Void)] = [
    ("put", { try $0.put("new", "x") }),
    ("put of a large value", { try $0.put("new", [UInt8](repeating: 2, count: 5000)) }),
    ("put over a value", { try $0.put("held", "x") }),
    ("put with a deadline", { try $0.put("new", [1], expiration: .at(1_900_000_000_000)) }),
    ("put by pieces", { try $0.put("new", writing: { writer in try writer.append([1, 2, 3]) }) }),
    ("put of what is expected", { _ = try $0.put("new", [1], expecting: .absent) }),
    ("put of what has changed", { _ = try $0.putIfChanged("held", [1]) }),
    ("delete", { try $0.delete("held") }),
    ("expire", { try $0.expire("held", .at(1_900_000_000_000)) }),
    ("transaction", { try $0.transaction { try $0.put("new", [1]) } }),
    ("transaction that deletes", { try $0.transaction { _ = try $0.delete("held") } }),
  ]

  @Test("refuses every way to write a user key, and changes nothing", arguments: 0..<ways.count)
  func refusals(way: Int) throws {
    for denial in [WriteDenial.readOnly, .revoked] {
      try store.setWriteDenial(denial)
      let digest = try store.digest()
      let error = #expect(throws: StoreError.self, "\(Self.ways[way].name)") {
        try Self.ways[way].write(store)
      }
      #expect(error?.code == .notAllowed, "\(Self.ways[way].name)")
      #expect(try store.digest() == digest && store.text("held") == "before")
    }
  }

  @Test("keeps the store's own metadata, receives, and stays read-only when it is opened again")
  func keepsReceiving() throws {
    let writer = try Store.create(on: other, id: store.id)
    try writer.put("theirs", "1")
    try store.setWriteDenial(.readOnly)
    try store.setLocal(Array("note".utf8), [1])
    try store.receive(from: writer)
    #expect(try store.text("theirs") == "1")
    try store.compact()
    try store.close()
    for _ in 0..<2 {
      let again = try Store.open(on: host)
      #expect(try again.writeDenial == .readOnly)
      #expect(throws: StoreError.self) { try again.put("new", "x") }
      try again.close()
      try JournalIndexFiles.remove(host)
    }
    let again = try Store.open(on: host)
    try again.setWriteDenial(nil)
    try again.put("new", "x")
    #expect(try again.text("new") == "x")
  }

  @Test("lists its earlier writes that no member accepts any more, in journal order")
  func stranded() throws {
    let first = try store.ownWrites(after: 0, limit: 100)
    #expect(first.count == 2)
    let position = store.journalPosition
    try store.put("held", "again")
    try store.delete("held")
    #expect(try store.ownWrites(after: position, limit: 100).map(\.isDelete) == [true])
    #expect(try store.ownWrites(after: 0, limit: 1).count == 1)
    // More than one turn covers.
    try store.transaction { transaction in
      for number in 0..<1_500 { try transaction.put(Key("many \(number)"), [1]) }
    }
    let all = try store.ownWrites(after: position, limit: .max)
    #expect(all.count == 1_501 && all.map(\.position) == all.map(\.position).sorted())
  }

  /// The store, and a member that has its writes from before it became read-only, and newer values of `held`
  /// and `theirs`. Later writes of the first one are in `stranded`.
  private func stranding() throws -> (member: Store, position: UInt64) {
    let member = try Store.create(on: other, id: store.id)
    try store.put("theirs", "old")
    try member.receive(from: store)
    let position = store.journalPosition
    try member.put("theirs", "1")
    try member.put("held", "member's")
    host.time += 10
    try store.put("held", "stranded")
    try store.put("only here", "stranded")
    try store.delete("theirs")
    try store.put("large", [UInt8](repeating: 2, count: 5000))
    try store.setWriteDenial(.readOnly)
    return (member, position)
  }

  private static let stranded: Set<Key> = ["held", "only here", "theirs", "large"]

  @Test("discards its unaccepted writes: the members' values come with the next session")
  func drops() throws {
    let (member, position) = try stranding()
    let dropped = try store.dropOwnWrites(after: position)
    #expect(Set(dropped.map(\.key)) == Self.stranded && dropped.filter(\.isDelete).count == 1)
    for key in Self.stranded { #expect(try store.get(key) == nil) }
    #expect(try store.dropOwnWrites(after: position).isEmpty)
    #expect(try store.ownWrites(after: position, limit: 10).isEmpty)
    try store.receive(from: member)
    #expect(try store.text("held") == "member's" && store.text("theirs") == "1")
    #expect(try store.get("only here") == nil && store.explain("large")?.winner.dot.sequence == 2)
    #expect(try store.digest() == member.digest() && store.versionVector() == member.versionVector())
    #expect(try store.replicaSummary().health == .healthy && store.verify().isClean)
    try member.receive(from: store)
    #expect(try member.get("only here") == nil && store.digest() == member.digest())
  }

  @Test("discards all or none of them in a loss of power, and needs the members' values afterwards")
  func dropsAtomically() throws {
    for seed in 0..<20 as Range<UInt64> {
      let test = try Self()
      let (member, position) = try test.stranding()
      try test.store.sync()
      if seed > 0 { _ = try test.store.dropOwnWrites(after: position) }
      test.host.losePower(seed: seed)
      let again = try Store.open(on: test.host)
      let left = try again.ownWrites(after: position, limit: 10)
      #expect(left.count == (seed > 0 ? 0 : Self.stranded.count), "durable on return")
      while try !again.dropOwnWrites(after: position).isEmpty {}
      try again.receive(from: member)
      #expect(try again.digest() == member.digest())
    }
  }

  @Test("does not discard a write that was replaced since, nor those that members have acknowledged")
  func dropsNothingElse() throws {
    let (member, position) = try stranding()
    other.time += 1000
    host.time += 1000
    try member.put("held", "newest")
    try store.receive(from: member)
    let dropped = try store.dropOwnWrites(after: position)
    #expect(!dropped.map(\.key).contains("held"))
    #expect(try store.text("held") == "newest")
  }

  @Test("closes no round during which it discarded writes: the values they had beaten are sent again")
  func dropsDuringRound() throws {
    let (member, position) = try stranding()
    let error = #expect(throws: StoreError.self) {
      try store.receive(from: member) { _ = try? store.dropOwnWrites(after: position) }
    }
    #expect(try error?.code == .overtaken && store.get("held") == nil)
    try store.receive(from: member)
    #expect(try store.text("held") == "member's" && store.digest() == member.digest())
  }

  @Test("keeps its writes while it may write")
  func keepsSentWrites() throws {
    let error = #expect(throws: StoreError.self) { try store.dropOwnWrites(after: 0) }
    #expect(error?.code == .notAllowed && error?.message.contains("next sync") == true)
    #expect(try store.text("held") == "before")
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

/// State that a copy discards when it becomes a new actor stays discarded, whatever sessions were in
/// progress.
@Suite("A round begun before its receiver became a new actor (R9)")
struct ActorRenewalInRoundTests {
  private let hosts = (0..<2).map {
    SimulatedHost(seed: UInt64($0 + 1), machine: "machine \($0)", encrypted: false)
  }

  private func copies() throws -> (receiver: Store, sender: Store) {
    for host in hosts { host.time += 1000 }
    let sender = try Store.create(on: hosts[1])
    return (try Store.create(on: hosts[0], id: sender.id), sender)
  }

  /// The receiver becomes a new actor in the middle of a round, or before its close.
  private func receive(
    _ receiver: Store, from sender: Store, maximumBytes: Int, renewing renew: () throws -> Void
  ) throws {
    let former = try receiver.actor
    let error = #expect(throws: StoreError.self) {
      try receiver.receive(from: sender, maximumBytes: maximumBytes) { try? renew() }
    }
    let isRenewed = try receiver.actor != former
    try #require(isRenewed)
    #expect(error?.code == .overtaken)
  }

  @Test(
    "leaves no cursor past records damaged during it, so that they are sent again", arguments: [1, 1 << 20])
  func damaged(maximumBytes: Int) throws {
    let (receiver, sender) = try copies()
    for number in 1...3 { try sender.put(Key("key \(number)"), "value") }
    try receive(receiver, from: sender, maximumBytes: maximumBytes) {
      let path = DamageInUseTests.path
      let bytes = try hosts[0].storage.open(path, .readOnly).read(1 << 20, at: 0)
      let place = try #require(bytes.firstRange(of: Array("key 1value".utf8)))
      try hosts[0].storage.flipBit(of: path, at: place.upperBound - 1, bit: 1)
      #expect(try !receiver.verify().isClean)
    }
    try receiver.receive(from: sender)
    for number in 1...3 { #expect(try receiver.text(Key("key \(number)")) == "value") }
    #expect(try receiver.digest() == sender.digest())
  }

  @Test("does not cover dots that only a fork of the actor covered", arguments: [1, 1 << 20])
  func rolledBack(maximumBytes: Int) throws {
    let (receiver, sender) = try copies()
    try receiver.put("given", "1")
    try sender.receive(from: receiver)
    let former = try receiver.actor
    // Written by a fork of it, before the rollback here.
    let stamp = try #require(try receiver.explain("given")).winner.stamp
    let record = Record(
      version: Version(
        stamp: Stamp(milliseconds: stamp.milliseconds + 1), dot: Dot(actor: former, sequence: 2)),
      key: Array("theirs".utf8), content: .inline(Array("2".utf8)))
    let mark = RoundMark(high: 0, low: 1)
    _ = try sender.apply(
      IncomingBatch(
        sender: former, mark: mark, position: 100, records: [PositionedRecord(position: 100, record: record)]),
      closing: RoundClose(
        sender: former, mark: mark, position: 100, vector: VersionVector([former: 2]), floor: VersionVector(),
        horizon: .zero))
    try receiver.put("mine", "2")
    for key in ["a", "b"] as [Key] { try sender.put(key, "3") }
    try receive(receiver, from: sender, maximumBytes: maximumBytes) { try receiver.becomeNewActor() }
    try receiver.receive(from: sender)
    try sender.receive(from: receiver)
    for store in [receiver, sender] {
      #expect(try store.list().map(\.key) == ["a", "b", "given", "mine", "theirs"])
    }
    #expect(try receiver.digest() == sender.digest())
  }
}

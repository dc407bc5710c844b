import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A process that has read a part of the journal, while another one compacts the rest.
@Suite("A reader during another process's segment installation")
struct SegmentInstallReaderTests {
  private let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
  private let plan = FaultPlan()
  private let host = SimulatedHost(compacting: .onRequest)
  private let turns = Turns()

  /// Action to run wherever an install yields to others.
  private final class Turns: Sendable {
    private let action = Locked<(@Sendable () -> Void)?>(nil)
    func set(_ new: (@Sendable () -> Void)?) { action.withLock { $0 = new } }
    func take() { action.withLock { $0 }?() }
  }

  /// One store for each of two processes; the first one's compactions run the actions of `plan` and `turns`.
  private func pair() throws -> (store: Store, other: Store) {
    try Store.create(on: host, configuration: shared).close()
    var environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    environment.onInstallYield = { [turns] in turns.take() }
    let store = try Store.open(
      at: "/store", configuration: host.configured(shared), environment: environment)
    let other = try Store.openSecond(on: host, configuration: shared)
    return (store, other)
  }

  /// The store as a third process opens it.
  private func third() throws -> Store {
    try Store.open(
      at: "/store", configuration: host.configured(shared), environment: host.environmentOf(process: 2_000))
  }

  private static let kept = 200

  /// Segments that stay unchanged, which the other process has read, followed by some that are worth
  /// compacting.
  private func fill(_ store: Store, _ other: Store) throws {
    for number in 0..<30 { try store.put(Key("old \(number)"), [UInt8](repeating: 1, count: 5000)) }
    #expect(try other.get("old 29") != nil)
    // None of these will be compacted.
    for number in 30..<60 { try store.put(Key("old \(number)"), [UInt8](repeating: 1, count: 5000)) }
    for number in 0..<20 { try store.put(Key("middle \(number)"), [UInt8](repeating: 1, count: 500)) }
    for number in 0..<Self.kept {
      try store.put(Key("new \(number)"), "\(number)")
      try store.put("filler", [UInt8](repeating: 2, count: 900))
    }
    for _ in 0..<14 { try store.put("filler", [UInt8](repeating: 3, count: 5000)) }
  }

  private func check(_ other: Store) {
    for number in stride(from: 0, to: Self.kept, by: 17) {
      let found = Result { try Key("new \(number)") }.flatMap { key in Result { try other.text(key) } }
      #expect(throws: Never.self) { _ = try found.get() }
      #expect((try? found.get()) == "\(number)")
      // A read without a lock needs no actor, one under the lock does.
      #expect(throws: Never.self) { _ = try other.currentRecord(Array("new \(number)".utf8)) }
    }
    #expect(other.core.engine.withLock { $0.index.isShared }, "it uses the index of all")
  }

  /// Compacts `store`, and checks `other` at each yield and at the end. Returns the number of checks at
  /// yields.
  private func looks(of other: Store, while store: Store) throws -> Int {
    let looks = Locked(0)
    turns.set {
      check(other)
      looks.withLock { $0 += 1 }
    }
    try store.compact()
    turns.set(nil)
    check(other)
    return looks.withLock { $0 }
  }

  @Test("finds what the index names when the copy has its name but no slot yet")
  func named() throws {
    let (store, other) = try pair()
    try fill(store, other)
    let looks = Locked(0)
    plan.before(.open, of: "-1.segment") {
      check(other)
      check(other)
      looks.withLock { $0 += 1 }
    }
    try store.compact()
    #expect(looks.withLock { $0 } > 0)
    check(other)
    #expect(try other.digest() == store.digest() && other.verify().isClean)
  }

  @Test("finds what the index names, partly in the copy and partly in the replaced segments")
  func halfMoved() throws {
    let (store, other) = try pair()
    try fill(store, other)
    #expect(try looks(of: other, while: store) > 1)
    #expect(try other.status().heldBytes == 0)
    #expect(try other.digest() == store.digest() && other.verify().isClean)
  }

  @Test("finds what the index names when the replaced segment was itself a copy that it has never seen")
  func compactedTwice() throws {
    let (store, other) = try pair()
    try fill(store, other)
    try store.compact()
    // Now it is worth compacting again.
    for number in 0..<20 { try store.put(Key("middle \(number)"), [UInt8](repeating: 2, count: 500)) }
    for _ in 0..<14 { try store.put("filler", [UInt8](repeating: 3, count: 5000)) }
    #expect(try looks(of: other, while: store) > 1)
    #expect(try other.digest() == store.digest() && other.verify().isClean)
  }

  @Test("computes the digest of all keys")
  func digest() throws {
    let (store, other) = try pair()
    try fill(store, other)
    let digests = Locked<[StateDigest?]>([])
    turns.set {
      let digest = try? other.digest()
      digests.withLock { $0.append(digest) }
    }
    try store.compact()
    turns.set(nil)
    let expected = try store.digest()
    #expect(digests.withLock { !$0.isEmpty && $0.allSatisfy { $0 == expected } })
    check(other)
  }

  @Test("can write during the installation, too")
  func writing() throws {
    let (store, other) = try pair()
    try fill(store, other)
    let looks = Locked(0)
    turns.set {
      let number = looks.withLock { looks in
        looks += 1
        return looks
      }
      // A record that was not moved.
      #expect(throws: Never.self) { try other.put(Key("new \(Self.kept - number)"), "other") }
      #expect(other.core.engine.withLock { $0.index.isShared }, "it uses the index of all")
    }
    try store.compact()
    turns.set(nil)
    for number in 1...looks.withLock({ $0 }) {
      #expect(try store.text(Key("new \(Self.kept - number)")) == "other")
    }
    #expect(try other.digest() == store.digest() && other.verify().isClean)
  }

  /// Makes `store` rewrite the list of special records in the index checkpoint.
  private func rewriteSpecialRecords(_ store: Store) throws {
    let installed = try store.core.engine.withLock { engine in
      try engine.index.checkpoint.specialRecords().installedCompaction
    }
    // Each of these adds one, until the list is rewritten without the replaced ones.
    try store.localKeys.set((0..<1200).map { (Array("note".utf8), [UInt8($0 & 255)]) })
    let noted = try store.core.engine.withLock { try $0.index.checkpoint.specialRecords() }
    #expect(noted.refs.count < 600 && noted.installedCompaction == installed)
  }

  @Test("reads what the index names if another writer has rewritten the list of actors meanwhile")
  func rewritten() throws {
    let (store, other) = try pair()
    try fill(store, other)
    let reader = Locked<Store?>(nil)
    turns.set {
      guard reader.withLock({ $0 == nil }) else { return }
      check(other)
      #expect(throws: Never.self) {
        try rewriteSpecialRecords(other)
        let opened = try third()
        reader.withLock { $0 = opened }
        check(opened)
      }
    }
    try store.compact()
    turns.set(nil)
    let opened = try #require(reader.withLock { $0 })
    check(opened)
    #expect(try opened.digest() == store.digest() && opened.verify().isClean)
  }

  @Test("is not taken for damage if its process dies after another one has rewritten the list of actors")
  func killed() throws {
    let (store, other) = try pair()
    try fill(store, other)
    let (digest, actor) = (try store.digest(), try store.actor)
    let isKilled = Locked(false)
    turns.set {
      guard !isKilled.withLock({ isKilled in exchange(&isKilled, with: true) }) else { return }
      check(other)
      #expect(throws: Never.self) { try rewriteSpecialRecords(other) }
      host.killProcesses()
    }
    _ = try? store.compact()
    let again = try Store.open(on: host, configuration: shared)
    check(again)
    #expect(try again.digest() == digest && again.verify().isClean)
    #expect(try again.actor == actor)
  }

  @Test(
    "reads again if the installation of a copy that it maps has begun since it caught up",
    .timeLimit(.minutes(Patience.minutes(1))))
  func begunSince() throws {
    let (store, other) = try pair()
    try fill(store, other)
    let (began, goesOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let (reader, attempts) = (Locked<Worker?>(nil), Locked(0))
    plan.before(.open, of: "-1.segment") {
      let worker = Worker.run {
        // It has the copy, which has no slot in the index yet.
        let opened = try third()
        try opened.reading { engine throws(StoreError) in
          let isFirst = attempts.withLock { attempts in
            attempts += 1
            return attempts == 1
          }
          if isFirst {
            began.signal()
            goesOn.wait()
            engine.assignSlots(mayAdd: false)
          }
          for number in 0..<Self.kept { _ = try engine.held(Array("new \(number)".utf8)) }
        }
      }
      reader.withLock { $0 = worker }
      began.wait()
    }
    turns.set {
      goesOn.signal()
      #expect(throws: Never.self) { try reader.withLock { exchange(&$0, with: nil) }?.wait() }
    }
    try store.compact()
    turns.set(nil)
    #expect(attempts.withLock { $0 } == 2)
    #expect(try store.verify().isClean && store.status().damagedPlaces == 0)
  }
}

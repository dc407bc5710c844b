import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Changes", .timeLimit(.minutes(Patience.minutes(2))))
struct ChangesTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  static let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
  let host = SimulatedHost(compacting: .onRequest)

  /// The next `count` changes.
  static func take(
    _ count: Int, _ iterator: inout Changes.AsyncIterator
  ) async throws -> [Change] {
    var changes: [Change] = []
    while changes.count < count, let change = try await iterator.next() { changes.append(change) }
    return changes
  }

  /// All available changes.
  static func all(of store: Store, from position: ChangePosition) async throws -> [Change] {
    try store.put("the end of it", "x")
    var changes: [Change] = []
    for try await change in try store.changes(from: position) {
      if change.key == "the end of it", try store.contains("the end of it"),
        change.position.position == (try store.changePosition().position)
      {
        break
      }
      changes.append(change)
    }
    return changes.filter { $0.key != "the end of it" }
  }

  static func text(_ change: Change) throws -> String {
    "\(change.key)=" + (try change.value().map { String(decoding: $0.bytes, as: UTF8.self) } ?? "-")
  }

  @Test("are the writes in journal order, with their metadata")
  func order() async throws {
    // An encrypted store has no blob tier.
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let store = try Store.create(on: host)
    try store.put("before", "x")
    var changes = try store.changes().makeAsyncIterator()
    var orders = try store.changes(prefix: "order/").makeAsyncIterator()
    try store.put("order/1", Array("a".utf8), type: .string, expiration: .at(host.time + 1000))
    try store.put("other", "b")
    try store.delete("order/1")
    try store.transaction { transaction in
      try transaction.put("order/2", Array("c".utf8))
      try transaction.put("other", Array("d".utf8))
      try transaction.put("order/3", [UInt8](repeating: 7, count: 30_000))
      try transaction.delete("other")
    }
    let all = try await Self.take(7, &changes)
    #expect(
      try all.map { try $0.blob == nil ? Self.text($0) : "blob" } == [
        "order/1=a", "other=b", "order/1=-", "order/2=c", "other=d", "blob", "other=-",
      ])
    #expect(all.map(\.endsTransaction) == [true, true, true, false, false, false, true])
    #expect(all.map(\.kind) == [.put, .put, .delete, .put, .put, .put, .delete])
    #expect(all.map(\.position.position) == Array(2...8))
    #expect(all[0].deadline == host.time + 1000)
    #expect(all[0].type == .string)
    #expect(all.map(\.dot.sequence) == Array(2...8))
    #expect(try all[5].value()?.bytes == [UInt8](repeating: 7, count: 30_000))
    #expect(all[5].size == 30_000)
    #expect(try all[0].actor == store.actor)
    let some = try await Self.take(4, &orders)
    #expect(some.map(\.key) == ["order/1", "order/1", "order/2", "order/3"])
    #expect(some.map(\.endsTransaction) == [true, true, false, true])
  }

  @Test("resume from any position, also within a transaction, and after the store was opened again")
  func positions() async throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try CompactionTests.churn(store, writes: 200)
    let seen = try await Self.all(of: store, from: .beginning)
    try store.close()
    let again = try Store.open(on: host, configuration: Self.small)
    for index in stride(from: 0, to: seen.count - 1, by: 17) {
      let text = seen[index].position.description
      let position = try #require(ChangePosition(text))
      #expect(position == seen[index].position)
      var iterator = try again.changes(from: position).makeAsyncIterator()
      let next = try await iterator.next()
      #expect(next?.dot == seen[index + 1].dot)
      #expect(next?.position == seen[index + 1].position)
    }
    for text in ["", "x", "::", ":1:-1", "zz:1:1", ":1", ":1:1:", ":1:1:x"] {
      #expect(ChangePosition(text) == nil, "\(text)")
    }
  }

  @Test(
    "applied to the state at their position give the present state, whatever was compacted",
    arguments: 0..<4 as Range<UInt64>)
  func compacted(seed: UInt64) async throws {
    let store = try Store.create(on: host, configuration: Self.small)
    var moments: [(position: ChangePosition, state: [Key: [UInt8]])] = [(.beginning, [:])]
    for turn in 0..<4 as Range<UInt64> {
      try CompactionTests.churn(store, writes: 150, seed: seed * 10 + turn)
      moments.append((try store.changePosition(), try Self.state(store)))
    }
    #expect(try store.compact() > 0)
    try CompactionTests.churn(store, writes: 50, seed: seed + 100)
    for moment in moments {
      var state = moment.state
      var last: UInt64 = 0
      for change in try await Self.all(of: store, from: moment.position) {
        #expect(change.position.position > last)
        last = change.position.position
        state[change.key] = try change.value()?.bytes
      }
      var expected = try Self.state(store)
      expected["the end of it"] = nil
      state["the end of it"] = nil
      #expect(state == expected)
    }
  }

  @Test("a snapshot and its position divide the writes of other threads: none is in both, none in neither")
  func snapshotAndPosition() async throws {
    let store = try Store.create(on: host, configuration: Self.shared)
    let count = 2000
    let writer = Task.detached { for index in 0..<count { try store.put(Key("k/\(index)"), "v") } }
    for turn in 0..<20 {
      let (snapshot, position) = try store.snapshotAndPosition()
      let seen = try snapshot.count
      // The writer puts its keys in order: the next change is the first key that the snapshot lacks.
      guard seen < count else { break }
      var changes = try store.changes(prefix: "k/", from: position).makeAsyncIterator()
      #expect(try await changes.next()?.key.description == "k/\(seen)", "turn \(turn)")
    }
    try await writer.value
    let (snapshot, position) = try store.snapshotAndPosition()
    #expect(try snapshot.count == count && position == store.changePosition())
  }

  static func state(_ store: Store) throws -> [Key: [UInt8]] {
    var state: [Key: [UInt8]] = [:]
    try store.scan { key, value in state[try Key(bytes: [UInt8](copying: key))] = [UInt8](copying: value) }
    return state
  }

  @Test("of concurrent writers, another process and a peer are seen once each during compaction")
  func concurrent() async throws {
    let here = try Store.create(on: host, configuration: Self.shared)
    let beside = try Store.openSecond(on: host, configuration: Self.shared)
    let far = SimulatedHost(seed: 9, machine: "far")
    let peer = try Store.create(on: far, id: here.id, configuration: Self.small)
    let changes = try here.changes()
    let count = 300
    let writers = (0..<3).map { writer in
      Threaded {
        for number in 0..<count {
          let key = Key(unchecked: Array("\(writer) \(number)".utf8))
          do {
            switch writer {
            case 0: try here.put(key, [UInt8](repeating: 0, count: 500))
            case 1: try beside.put(key, [UInt8](repeating: 1, count: 500))
            default:
              try peer.put(key, [UInt8](repeating: 2, count: 500))
              if number % 50 == 49 { try here.receive(from: peer) }
            }
            // Something for compaction to drop.
            try here.put("hot", [UInt8](repeating: 3, count: 2000))
            if number % 60 == 30, writer < 2 { _ = try (writer == 0 ? here : beside).compact() }
          } catch {
            Issue.record(error, "writer \(writer), key \(number)")
          }
        }
      }
    }
    for writer in writers { writer.start() }
    var seen: [Key: Int] = [:]
    var last: UInt64 = 0
    var hot = 0
    for try await change in changes {
      #expect(change.position.position > last)
      last = change.position.position
      if change.key == "hot" { hot += 1 } else { seen[change.key, default: 0] += 1 }
      if seen.count == 3 * count { break }
    }
    for writer in writers { writer.join() }
    #expect(seen.count == 3 * count)
    #expect(seen.values.allSatisfy { $0 == 1 })
    #expect(hot > 0)
    try beside.close()
    try here.close()
  }

  @Test("wait for a slow reader without buffering, and it misses no current value")
  func slow() async throws {
    let store = try Store.create(on: host, configuration: Self.small)
    var iterator = try store.changes().makeAsyncIterator()
    try store.put("first", "x")
    #expect(try await iterator.next()?.key == "first")
    try CompactionTests.churn(store, writes: 600, seed: 5)
    let before = try store.changePosition()
    #expect(try store.compact() > 0)
    #expect(store.changeSignal.count == 0)
    #expect(try store.status().heldBytes == 0)
    var state: [Key: [UInt8]] = ["first": Array("x".utf8)]
    var number = 0
    while let change = try await iterator.next() {
      state[change.key] = try change.value()?.bytes
      number += 1
      if change.position.position == before.position { break }
    }
    #expect(state == (try Self.state(store)))
    #expect(number < 600)
  }

  @Test("end at once when the task is cancelled, waiting or not")
  func cancellation() async throws {
    let store = try Store.create(on: host)
    let changes = try store.changes()
    let waiting = Task {
      var count = 0
      for try await _ in changes { count += 1 }
      return count
    }
    try await Self.until { store.changeSignal.count == 1 }
    waiting.cancel()
    #expect(try await waiting.value == 0)
    #expect(store.changeSignal.count == 0)
    // A cancelled consumer gets nothing, though a change is available.
    try store.put("k", "v")
    let cancelled = Task {
      unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
      var iterator = changes.makeAsyncIterator()
      return try await iterator.next() == nil
    }
    #expect(try await cancelled.value)
    var other = changes.makeAsyncIterator()
    #expect(try await other.next()?.key == "k")
  }

  /// Waits asynchronously for an action of another thread.
  static func until(_ condition: () throws -> Bool) async throws {
    while try !condition() { try await Task.sleep(nanoseconds: 1_000_000) }
  }

  @Test("end with an error when the store is closed")
  func closed() async throws {
    let store = try Store.create(on: host)
    let changes = try store.changes()
    let waiting = Task { () -> StoreError.Code? in
      do {
        for try await _ in changes {}
        return nil
      } catch {
        return (error as? StoreError)?.code
      }
    }
    try await Self.until { store.changeSignal.count == 1 }
    try store.close()
    #expect(await waiting.value == .closed)
  }

  @Test(
    "of a peer whose clock runs ahead are seen once applied, also from a later position")
  func early() async throws {
    let store = try Store.create(on: host)
    let far = SimulatedHost(seed: 9, time: host.time + 200_000, machine: "far")
    let peer = try Store.create(on: far, id: store.id)
    try peer.put("early", "x")
    var live = try store.changes().makeAsyncIterator()
    try store.receive(from: peer)
    try store.put("after", "y")
    let after = try #require(try await live.next())
    #expect(after.key == "after")
    let position = try #require(ChangePosition(after.position.description))
    #expect(position.pending.count == 1)
    let now = try store.changePosition()
    #expect(now.pending == position.pending)
    host.time += 200_000
    for start in [position, now] {
      var iterator = try store.changes(from: start).makeAsyncIterator()
      #expect(try await iterator.next()?.key == "early")
    }
    #expect(try await live.next()?.key == "early")
    try store.put("last", "z")
    let last = try await live.next()
    #expect(last?.key == "last")
    #expect(last?.position.pending == [])
  }

  @Test("are not available from a text that is no position")
  func noPosition() {
    for text in ["", ":", ":0", ":0:0:x", ":18446744073709551615:0", ":1:0", ":0:7", ":0:0:1", "x:1:0"] {
      #expect(ChangePosition(text) == nil, "\(text)")
    }
    #expect(ChangePosition(":0:0") == .beginning)
  }

  @Test("are refused from the position of another copy, or of lost writes")
  func rolledBack() async throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try store.put("a", "1")
    try store.sync()
    for number in 0..<20 { try store.put(Key("k \(number)"), "lost") }
    let lost = try store.changePosition()
    host.losePower(seed: 3)
    let again = try Store.open(on: host, configuration: Self.small)
    let foreign = ChangePosition(
      actor: ActorID(high: 9, low: 9), position: 1, stamp: .zero)
    try await Self.expect(.rolledBack, again, foreign)
    // Unsynced data is lost with this seed.
    #expect(try again.changePosition().position < lost.position)
    try await Self.expect(.rolledBack, again, lost)
    host.time += 10
    while try again.changePosition().position < lost.position { try again.put("other", "new") }
    try await Self.expect(.rolledBack, again, lost)
  }

  static func expect(_ code: StoreError.Code, _ store: Store, _ position: ChangePosition) async throws {
    var iterator = try store.changes(from: position).makeAsyncIterator()
    do throws(StoreError) {
      let change = try await iterator.next()
      Issue.record("\(String(describing: change?.key)) instead of \(code)")
    } catch {
      #expect(error.code == code)
    }
  }

  @Test("are refused from a position after which tombstones were purged")
  func purged() async throws {
    let store = try Store.create(on: host)
    for number in 0..<5 { try store.put(Key("\(number)"), "x") }
    var writer = ByteWriter()
    writer.write(UInt64(3))
    let value = writer.bytes
    try store.writes.append { builder throws(StoreError) in try builder.setLocal(StateKey.purged, value) }
    let actor = try store.actor
    try await Self.expect(.changesLost, store, ChangePosition(actor: actor, position: 2, stamp: .zero))
    var iterator = try store.changes(from: ChangePosition(actor: actor, position: 3, stamp: .zero))
      .makeAsyncIterator()
    #expect(try await iterator.next()?.key == "3")
    // An observer that starts from nothing holds nothing that could have been deleted.
    var anew = try store.changes(from: .beginning).makeAsyncIterator()
    #expect(try await anew.next()?.key == "0")
  }

  @Test("are seen by a read-only process")
  func readOnly() async throws {
    let writer = try Store.create(on: host, configuration: Self.shared)
    var third = host.environment
    third.process += 2_000
    let reader = try Store.open(
      at: "/store", configuration: host.configured(Configuration(mode: .readOnly)), environment: third)
    let changes = try reader.changes()
    let first = Task {
      var iterator = changes.makeAsyncIterator()
      return try await iterator.next()?.key
    }
    try await Self.until { reader.changeSignal.count == 1 }
    try writer.put("k", "v")
    #expect(try await first.value == "k")
    try reader.close()
    try writer.close()
  }

  @Test("are not missed by a non-blocking waiter while another process is in the middle of a write")
  func waitingAtOnce() throws {
    let writer = try Store.create(on: host, configuration: Self.shared)
    let waiter = try Store.openSecond(on: host, configuration: Self.shared)
    let (before, told) = (waiter.journalPosition, Locked(0))
    let tell = { @Sendable in told.withLock { $0 += 1 } }
    #expect(waiter.notifyWhenGrownIfFree(after: before, tell) && waiter.changeSignal.count == 1)
    try waiter.put("own", "v")
    #expect(told.withLock { $0 } == 1)
    let own = waiter.journalPosition
    try writer.put("k", "v")
    // The tail was moved, the position not yet: no later write would wake a waiter registered now.
    writer.control.position = own
    #expect(!waiter.notifyWhenGrownIfFree(after: own, tell) && waiter.changeSignal.count == 0)
    #expect(waiter.notifyWhenGrown(after: own, tell) && told.withLock { $0 } == 2)
    try waiter.close()
    try writer.close()
    // A closed journal never grows again.
    #expect(waiter.notifyWhenGrown(after: waiter.journalPosition, tell) && told.withLock { $0 } == 2)
  }

  @Test("are waited for again after a wait that failed for want of descriptors (F33)")
  func waitingWithoutDescriptors() async throws {
    let writer = try Store.create(on: host, configuration: Self.shared)
    let (plan, told) = (FaultPlan(), Locked(0))
    var environment = host.otherProcess
    environment.storage = FaultingStorage(host.storage, plan: plan)
    let waiter = try Store.open(
      at: "/store", configuration: host.configured(Self.shared), environment: environment)
    for number in 0..<6 { try writer.put(Key("\(number)"), [UInt8](repeating: 1, count: 18_000)) }
    let position = waiter.journalPosition
    plan.fail(.open, on: "/journal/", forever: true, errno: EMFILE)
    let tell = { @Sendable in told.withLock { $0 += 1 } }
    #expect(!waiter.notifyWhenGrown(after: position, tell) && waiter.changeSignal.count == 0)
    plan.clear()
    #expect(waiter.notifyWhenGrown(after: position, tell) && waiter.changeSignal.count == 1)
    try writer.put("k", "v")
    try await Self.until { told.withLock { $0 } == 1 }
    try waiter.close()
    try writer.close()
  }
}

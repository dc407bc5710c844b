import SyncStore
import SyncTestSupport

@testable import Replication

/// The relay of a twin. Its objects are those of the stores; the model has its own relay, and both are put
/// back together.
final class TwinRelay {
  let objects: InterruptedObjectStore
  /// The program's memory of the relay, lost with its process.
  var clients: [Int: (store: Store, client: RelayClient)] = [:]
  /// The model's numbers of streams and marks.
  private(set) var streams: [StreamID: Int] = [:]
  private(set) var marks: [RoundMark: Int] = [:]
  /// The relay after its last publications.
  var snapshots: [(objects: VirtualObjectStore.Snapshot, model: Model.Relay)] = []

  init(seed: UInt64) { objects = InterruptedObjectStore(VirtualObjectStore(seed: seed)) }

  /// What a store knows of its only relay.
  func progress(of store: Store) throws -> RelayProgress {
    try store.knownRelays().first.map { try store.relayProgress($0) } ?? RelayProgress()
  }

  func facts(of store: Store) throws -> RelayFacts { RelayFacts(of: try progress(of: store), self) }

  /// The model has made the same entry as a store, or is about to: their names belong together. A name that
  /// is known already stays, so entries that differ later are found.
  func pair(_ progress: RelayProgress, with state: Model.RelayState) {
    if let stream = progress.stream, let number = state.stream, streams[stream] == nil,
      !streams.values.contains(number)
    {
      streams[stream] = number
    }
    for (name, mark) in [(progress.last?.mark, state.mark), (progress.pending, state.pending ?? 0)] {
      if let name, mark > 0, marks[name] == nil, !marks.values.contains(mark) { marks[name] = mark }
    }
  }

  /// A place by the model's numbers; those of a stream or mark that the model does not have are -1.
  func place(_ place: RelayProgress.Place?, in stream: StreamID) -> RelayFacts.Place {
    RelayFacts.Place(
      stream: streams[stream] ?? -1, number: Int(place?.number ?? 0),
      mark: place.map { marks[$0.mark] ?? -1 } ?? 0)
  }
}

/// What a copy knows of the relay, by the model's numbers.
struct RelayFacts: Equatable, CustomStringConvertible {
  struct Place: Hashable, Comparable, CustomStringConvertible {
    var stream: Int
    var number: Int
    var mark: Int

    init(stream: Int, number: Int, mark: Int) {
      (self.stream, self.number, self.mark) = (stream, number, mark)
    }

    init(_ id: Model.Relay.EntryID) { self.init(stream: id.stream, number: id.number, mark: id.mark) }

    var description: String { "\(stream):\(number):\(mark)" }
    static func < (left: Place, right: Place) -> Bool {
      (left.stream, left.number) < (right.stream, right.number)
    }
  }

  /// The last entry of its own stream. Without one there is nothing to compare: the store also begins a
  /// stream only to state what it has read.
  var own: Place?
  var seen: [Place]
  /// What the entries that it has read or written cover: C of the rules.
  var covered: [Twin.Facts.Dot]
  /// Closes of selective publishers that are owed.
  var owed: Int

  var description: String {
    "own \(own.map { "\($0)" } ?? "-") seen \(seen) covered \(covered.map { "\($0.actor):\($0.sequence)" }) owed \(owed)"
  }

  init(of progress: RelayProgress, _ relay: TwinRelay) {
    if let stream = progress.stream, let last = progress.last { own = relay.place(last, in: stream) }
    seen = progress.seen.map { relay.place($0.value, in: $0.key) }.sorted()
    let vector = progress.covered
    covered = vector.actors.map {
      Twin.Facts.Dot(actor: Int($0.low), sequence: Int(vector[$0]))
    }.sorted()
    owed = progress.owed.count
  }

  init(of state: Model.RelayState) {
    if let stream = state.stream, state.number > 0 {
      own = Place(stream: stream, number: state.number, mark: state.mark)
    }
    seen = state.seen.filter { $0.id.number > 0 }.map { Place($0.id) }.sorted()
    covered = state.covered.pairs.map {
      Twin.Facts.Dot(actor: $0.actor.number, sequence: $0.sequence)
    }.sorted()
    owed = state.owed.count
  }
}

/// Objects whose client can be stopped at the write that makes an entry exist: that of a head.
final class InterruptedObjectStore: ForwardingObjectStore {
  typealias PowerLoss = Model.RelayOperation.PowerLoss
  let objects: VirtualObjectStore
  private let planned = Locked(PowerLoss.never)

  init(_ objects: VirtualObjectStore) { self.objects = objects }

  /// When the client stops next.
  var plan: PowerLoss {
    get { planned.withLock { $0 } }
    set { planned.withLock { $0 = newValue } }
  }

  /// Whether the client was stopped.
  var hasStopped: Bool { objects.faults.diesAfter == 0 }

  func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome {
    let plan = plan
    guard plan != .never, name.hasPrefix(RelayName.heads) else {
      return try await objects.put(name, bytes, if: condition)
    }
    if plan == .afterCreation { _ = try await objects.put(name, bytes, if: condition) }
    objects.faults.diesAfter = 0
    return try await objects.put(name, bytes, if: condition)
  }
}

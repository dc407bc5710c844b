package import Replication
internal import SyncStore

/// Objects in memory, of which everything can fail that fails in buckets and on sticks. The seed determines
/// what does.
package final class VirtualObjectStore: ObjectStore {
  /// Chances in percent, for each request.
  package struct Faults: Sendable {
    /// It fails and has no effect.
    package var fails: UInt64 = 0
    /// It has its effect, and fails: the answer is lost.
    package var losesAnswer: UInt64 = 0
    /// A listing leaves out some objects.
    package var listsPart: UInt64 = 0
    /// A write is carried out twice, as by a client that repeats it: a condition refuses the second.
    package var repeats: UInt64 = 0
    /// Conditions of writes are ignored.
    package var ignoresConditions = false
    /// Fails every request after so many more, as if the client had died; nil for never.
    package var diesAfter: Int?
    /// The error of those requests, in place of the client's death.
    package var error: ObjectStoreError?

    /// Nothing fails.
    package init() {}
  }

  fileprivate struct Object {
    var bytes: [UInt8]
    var version: UInt64
    var modified: UInt64
  }

  private struct State {
    var objects: [String: Object] = [:]
    var version: UInt64 = 0
    var time: UInt64
    var faults = Faults()
    var random: SplitMix64
    var figures = ObjectStoreFigures()
  }

  /// All objects at some time.
  package struct Snapshot: Sendable {
    fileprivate let objects: [String: Object]
  }

  private let state: Locked<State>

  /// No objects. `time` is the store's clock, in milliseconds since 1970.
  package init(seed: UInt64, time: UInt64 = 1_700_000_000_000) {
    state = Locked(State(time: time, random: SplitMix64(seed: seed)))
  }

  package var location: String { "virtual" }
  package var figures: ObjectStoreFigures { state.withLock { $0.figures } }
  package var clock: UInt64? { state.withLock { $0.time } }

  /// The store's clock.
  package var time: UInt64 {
    get { state.withLock { $0.time } }
    set { state.withLock { $0.time = newValue } }
  }

  /// What can fail.
  package var faults: Faults {
    get { state.withLock { $0.faults } }
    set { state.withLock { $0.faults = newValue } }
  }

  /// All objects, to be put back.
  package var snapshot: Snapshot { state.withLock { Snapshot(objects: $0.objects) } }

  /// The objects are again those of a snapshot.
  package func putBack(_ snapshot: Snapshot) { state.withLock { $0.objects = snapshot.objects } }

  /// The names of all objects.
  package var names: [String] { state.withLock { $0.objects.keys.sorted() } }

  /// Changes the bytes of an object, as no member would; nil removes it.
  package func replace(_ name: String, with change: ([UInt8]) -> [UInt8]?) {
    state.withLock { state in
      guard let object = state.objects[name] else { return }
      state.version += 1
      state.objects[name] = change(object.bytes).map {
        Object(bytes: $0, version: state.version, modified: state.time)
      }
    }
  }

  /// Runs a request, or fails it.
  private func request<Answer>(
    _ operation: ObjectOperation, _ body: (inout State) throws(ObjectStoreError) -> Answer
  ) throws(ObjectStoreError) -> Answer {
    try state.withLock { state throws(ObjectStoreError) in
      if let left = state.faults.diesAfter {
        guard left > 0 else {
          throw ObjectStoreError(.cancelled, "virtual: the process died: start it again")
        }
        state.faults.diesAfter = left - 1
      }
      let lost = ObjectStoreError(.unreachable, "virtual: the connection broke: try again")
      guard !state.random.chance(state.faults.fails) else {
        state.figures.count(operation, status: 0)
        throw lost
      }
      let answer = try body(&state)
      if state.random.chance(state.faults.losesAnswer) { throw lost }
      return answer
    }
  }

  package func get(
    _ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int
  ) async throws(ObjectStoreError) -> ObjectReading {
    try request(.get) { state throws(ObjectStoreError) in
      guard let object = state.objects[name] else {
        state.figures.count(.get, status: 404)
        return .absent
      }
      let version = ObjectVersion(tag: "\(object.version)")
      if let known, known == version {
        state.figures.count(.get, status: 304)
        return .unchanged
      }
      let wanted = (range ?? 0..<UInt64.max).clamped(to: 0..<UInt64(object.bytes.count))
      guard wanted.count <= limit else {
        throw ObjectStoreError(.tooLarge, "virtual: \(name) has \(object.bytes.count) bytes: too many")
      }
      let bytes = Array(object.bytes[Int(wanted.lowerBound)..<Int(wanted.upperBound)])
      state.figures.count(.get, status: 200, received: bytes.count)
      return .found(ObjectContent(bytes: bytes, version: version, modified: object.modified))
    }
  }

  package func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome {
    try request(.put) { state throws(ObjectStoreError) in
      let first = Self.write(name, bytes, condition, &state)
      guard state.random.chance(state.faults.repeats) else { return first }
      return Self.write(name, bytes, condition, &state)
    }
  }

  private static func write(
    _ name: String, _ bytes: [UInt8], _ condition: PutCondition, _ state: inout State
  ) -> PutOutcome {
    let there = state.objects[name]
    let holds =
      switch condition {
      case .always: true
      case .absent: there == nil
      case .version(let version): there.map { "\($0.version)" } == version.tag
      }
    guard holds || state.faults.ignoresConditions else {
      state.figures.count(.put, status: 412, sent: bytes.count)
      return .refused
    }
    state.version += 1
    state.objects[name] = Object(bytes: bytes, version: state.version, modified: state.time)
    state.figures.count(.put, status: 200, sent: bytes.count)
    return .stored(ObjectVersion(tag: "\(state.version)"))
  }

  package func list(_ prefix: String) async throws(ObjectStoreError) -> [ObjectEntry] {
    try request(.list) { state throws(ObjectStoreError) in
      state.figures.count(.list, status: 200)
      let isPart = state.random.chance(state.faults.listsPart)
      var entries: [ObjectEntry] = []
      let named = state.objects.filter { $0.key.hasPrefix(prefix) }
      for (name, object) in named.sorted(by: { $0.key < $1.key }) {
        if isPart, state.random.chance(40) { continue }
        entries.append(
          ObjectEntry(
            name: name, size: UInt64(object.bytes.count), version: ObjectVersion(tag: "\(object.version)"),
            modified: object.modified))
      }
      return entries
    }
  }

  package func delete(_ names: [String]) async throws(ObjectStoreError) {
    for name in names {
      try request(.delete) { state throws(ObjectStoreError) in
        state.objects[name] = nil
        state.figures.count(.delete, status: 204)
      }
    }
  }
}

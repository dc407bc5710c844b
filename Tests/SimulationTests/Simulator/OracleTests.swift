import SyncStore
import SyncTestSupport
import Testing

/// What the oracle permits and rejects: an oracle that permitted everything would find nothing.
@Suite("The oracle of simulated networks")
struct OracleTests {
  /// A copy, and the oracle's observations of it.
  private final class Copy {
    var oracle = Oracle()
    let host = SimulatedHost(seed: 1, time: 1_800_000_000_000, machine: "a")
    let store: Store
    private let key: Key = "k"
    private var seen = Oracle.Seen()

    init() throws { store = try Store.create(on: host, configuration: Simulation.configuration) }

    /// Writes a value; `replaced` is the former value, if the oracle must record the replacement.
    func put(_ value: String, replacing replaced: String? = nil) throws {
      oracle.ask(key, Oracle.Content(bytes: Array(value.utf8)))
      try store.put(key, Array(value.utf8))
      for entry in try store.log(from: seen.position + 1, limit: .max) {
        let write = try oracle.see(entry, at: "a")
        if let write, let replaced { oracle.past.replace(Array(replaced.utf8), by: write.dot) }
        seen.add(entry)
      }
    }

    func judge() throws { try oracle.judgeReturns(to: store, "a", at: host.time, &seen) }
  }

  @Test("objects to a copy that reissues a record that it knew to be superseded")
  func returning() throws {
    let copy = try Copy()
    try copy.put("first")
    try copy.put("second", replacing: "first")
    try copy.put("first")
    #expect(throws: Oracle.Violation.self) { try copy.judge() }
  }

  /// A put that finds a due parked record may append both at once.
  @Test("allows a copy to reissue a write and replace it before the oracle looks")
  func replacedAfterwards() throws {
    let copy = try Copy()
    try copy.put("first")
    try copy.put("first")
    try copy.put("second", replacing: "first")
    try copy.judge()
  }
}

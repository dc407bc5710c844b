import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Everything that can be wrong with the objects of a relay, in each position, and each error of a store at
/// each request: nothing is lost, and the rest goes through.
@Suite(.timeLimit(.minutes(Patience.minutes(4)))) struct RelayFaultTests {
  /// A member that has published every kind of object, and how others join it.
  private struct Fleet {
    let first: TestCopy
    let objects = VirtualObjectStore(seed: 1)
    let address: Endpoint
    /// The objects at two times before the last.
    var earlier: [VirtualObjectStore.Snapshot] = []

    init() async throws {
      first = try TestCopy.first()
      address = try await first.listen()
    }

    func client(_ copy: TestCopy) throws -> RelayClient {
      try RelayClient(store: copy.store, objects: objects, name: "relay")
    }

    /// A member that has read nothing.
    func newcomer(_ name: String) async throws -> TestCopy {
      let copy = try await TestCopy.joined(try Node.invite(to: first.store), name)
      await copy.node.stop()
      return copy
    }

    /// Publishes entries in the head, runs, parts, a checkpoint and large values.
    mutating func publish() async throws {
      let client = try client(first)
      for number in 0..<2500 { try first.put("part/\(number)", String(repeating: "v", count: 100)) }
      _ = try await client.push()
      earlier.append(objects.snapshot)
      for round in 0..<14 {
        for key in 0..<8 { try first.put("run/\(key)", String(repeating: "\(round % 10)", count: 900)) }
        _ = try await client.push()
      }
      earlier.append(objects.snapshot)
      try first.store.put("whole", noise(50_000, seed: 3))
      try first.store.put("groups", noise(5 << 20, seed: 4))
      _ = try await client.push()
      for kind in ["e/", "c/", "h/", "b/"] {
        #expect(objects.names.contains { $0.hasPrefix(kind) }, "\(kind)")
      }
    }

    func isInStep(_ copy: TestCopy) throws -> Bool {
      let missing = try copy.store.blobsToFetch().blobs
      return try copy.digest() == first.digest() && missing.isEmpty
    }
  }

  private enum Fault: CaseIterable {
    case missing, cut, longer, changed, swapped, replayed, foreign
  }

  @Test
  func `each object missing, cut, changed, swapped or replayed is set aside, and read once it is right`()
    async throws
  {
    var fleet = try await Fleet()
    try await fleet.publish()
    let right = fleet.objects.snapshot
    // Groups and parts are alike: two of each kind are enough.
    var kinds: [Substring: Int] = [:]
    let names = fleet.objects.names.filter { name in
      kinds[name.prefix(2), default: 0] += 1
      return kinds[name.prefix(2)] ?? 0 <= 2 && name != RelayName.bell
    }
    var number = 0
    for name in names {
      for fault in Fault.allCases {
        number += 1
        fleet.objects.putBack(right)
        try await spoil(name, by: fault, fleet)
        let reader = try await fleet.newcomer("reader-\(number)")
        do {
          let report = try await fleet.client(reader).pull()
          // A value that was cut off from its record is as good as set aside.
          let isNoticed =
            !report.setAside.isEmpty || report.missingBlobs + Int(report.waitingEntries) > 0
            || report.entries == 0
          #expect(try isNoticed || fleet.isInStep(reader), "\(name) \(fault)")
        } catch {
          #expect(name == RelayFormat.name, "\(name) \(fault): \(error)")
        }
        fleet.objects.putBack(right)
        // A head that was not there left no trace: the next publication has it read.
        fleet.objects.replace(RelayName.bell) { _ in noise(16, seed: UInt64(number)) }
        _ = try await fleet.client(reader).pull()
        #expect(try fleet.isInStep(reader), "\(name) \(fault)")
        try reader.store.close()
      }
    }
    await fleet.first.node.stop()
  }

  private func spoil(_ name: String, by fault: Fault, _ fleet: Fleet) async throws {
    let other =
      fleet.objects.names.first { $0.hasPrefix("h/") != name.hasPrefix("h/") && $0 != "bell" } ?? "bell"
    guard case .found(let swapped) = try await fleet.objects.get(other) else { return }
    switch fault {
    case .missing: fleet.objects.replace(name) { _ in nil }
    case .cut: fleet.objects.replace(name) { $0.dropLast() }
    case .longer: fleet.objects.replace(name) { $0 + [0] }
    case .changed:
      fleet.objects.replace(name) { bytes in
        var bytes = bytes
        bytes[bytes.count / 2] ^= 1
        return bytes
      }
    case .swapped: fleet.objects.replace(name) { _ in swapped.bytes }
    case .foreign: fleet.objects.replace(name) { _ in Array("<html>no such page</html>".utf8) }
    case .replayed:
      let now = fleet.objects.snapshot
      fleet.objects.putBack(fleet.earlier[0])
      let old = try await fleet.objects.get(name)
      fleet.objects.putBack(now)
      if case .found(let content) = old { fleet.objects.replace(name) { _ in content.bytes } }
    }
  }

  @Test(arguments: ObjectStoreError.Code.allCases)
  func `a push or a pull that fails at any request is carried on by the next`(code: ObjectStoreError.Code)
    async throws
  {
    let fleet = try await Fleet()
    let reader = try await fleet.newcomer("reader")
    for index in 0..<40 {
      try fleet.first.put("key/\(index)", "\(index)")
      try fleet.first.store.put("large", noise(2000, seed: UInt64(index)))
      fleet.objects.faults.error = ObjectStoreError(code, "virtual: \(code): try again")
      fleet.objects.faults.diesAfter = index % 12
      for copy in [fleet.first, reader] {
        let client = try fleet.client(copy)
        do throws(ReplicationError) { _ = try await client.sync() } catch {
          #expect(error.message.contains("virtual: "), "\(error)")
          #expect(error.code != .digestsDiffer && error.store == nil)
        }
      }
      fleet.objects.faults.diesAfter = nil
      _ = try await fleet.client(fleet.first).push()
      _ = try await fleet.client(reader).pull()
      #expect(try fleet.isInStep(reader), "\(code) at request \(index % 12)")
    }
    await fleet.first.node.stop()
  }

  @Test func `listings that are empty, partial or doubled, and conditions that are ignored, lose nothing`()
    async throws
  {
    let fleet = try await Fleet()
    let reader = try await fleet.newcomer("reader")
    fleet.objects.faults.ignoresConditions = true
    for index in 0..<20 {
      fleet.objects.faults.listsPart = [0, 60, 100][index % 3]
      fleet.objects.faults.repeats = 30
      try fleet.first.put("key/\(index)", "\(index)")
      _ = try await fleet.client(fleet.first).sync()
      _ = try await fleet.client(reader).sync()
    }
    fleet.objects.faults = VirtualObjectStore.Faults()
    _ = try await fleet.client(fleet.first).sync()
    _ = try await fleet.client(reader).sync()
    #expect(try fleet.isInStep(reader))
    #expect(fleet.objects.names.filter { $0.hasPrefix("h/") }.count == 2, "no stream was begun anew")
    await fleet.first.node.stop()
  }

  @Test(arguments: [0, 1, 2]) func `a relay that is put back to any earlier state is filled again`(state: Int)
    async throws
  {
    var fleet = try await Fleet()
    let empty = fleet.objects.snapshot
    try await fleet.publish()
    let reader = try await fleet.newcomer("reader")
    _ = try await fleet.client(reader).sync()
    fleet.objects.putBack(([empty] + fleet.earlier)[state])
    try reader.put("later", "two")
    try fleet.first.put("earlier", "one")
    for _ in 0..<3 {
      for copy in [reader, fleet.first] { _ = try await fleet.client(copy).sync() }
    }
    #expect(try fleet.isInStep(reader))
    let newcomer = try await fleet.newcomer("newcomer")
    _ = try await fleet.client(newcomer).pull()
    _ = try await fleet.client(newcomer).pull()
    #expect(try fleet.isInStep(newcomer))
    await fleet.first.node.stop()
  }

  @Test func `a small change costs two writes, and each reader a listing and two reads`() async throws {
    let fleet = try await Fleet()
    let (reader, other) = (try await fleet.newcomer("reader"), try await fleet.newcomer("other"))
    let clients = try [fleet.first, reader, other].map { try fleet.client($0) }
    for _ in 0..<2 { for client in clients { _ = try await client.sync() } }
    // The last statements of what was read are read with the next publication.
    try fleet.first.put("a", "zero")
    _ = try await clients[0].publish()
    for client in clients { _ = try await client.pull() }
    try fleet.first.put("a", "one")
    let sent = try await clients[0].publish()
    #expect(sent.figures.requests == [.init(.put, status: 200): 2])
    let read = try await clients[1].pull()
    #expect(read.figures.requests == [.init(.get, status: 200): 2, .init(.list, status: 200): 1])
    #expect(try await clients[1].pull().figures.requests == [.init(.get, status: 304): 1])
    #expect(try reader.get("a") == "one")
    await fleet.first.node.stop()
  }

  @Test func `a store whose clock is a day off, either way, changes nothing that is exchanged`() async throws
  {
    for day in [-86_400_000, 86_400_000] as [Int64] {
      let fleet = try await Fleet()
      fleet.objects.time = UInt64(Int64(fleet.first.store.environment.now()) + day)
      try fleet.first.put("a", "one")
      try fleet.first.store.put("large", noise(5000, seed: 9))
      _ = try await fleet.client(fleet.first).sync()
      let reader = try await fleet.newcomer("reader")
      _ = try await fleet.client(reader).sync()
      #expect(try fleet.isInStep(reader))
      _ = try await fleet.client(fleet.first).sync()
      #expect(try await fleet.client(fleet.first).collect(isDryRun: false).collectedObjects == 0)
      await fleet.first.node.stop()
    }
  }
}

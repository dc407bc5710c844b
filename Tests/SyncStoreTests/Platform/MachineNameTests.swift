import SyncTestSupport
import Testing

@testable import SyncStore

/// The parts of a machine's name that count when a store is opened (rule R9): each new container can have
/// another /etc/machine-id.
@Suite("A store on a machine whose name changes")
struct MachineNameTests {
  let host = SimulatedHost()

  private func environment(_ machine: String) -> Environment {
    var environment = host.environment
    environment.machine = machine
    return environment
  }

  private func actor(openedAs machine: String, _ path: String = "/store") throws -> ActorID {
    let store = try Store.open(
      at: path, configuration: host.configured(), environment: environment(machine))
    defer { try? store.close() }
    try store.put(Key(machine.isEmpty ? "none" : machine), "x")
    return try store.actor
  }

  @Test("keeps its actor in successive containers, closed or killed, as long as the kernel runs")
  func containers() throws {
    let store = try Store.create(on: host)
    let actor = try store.actor
    try store.close()
    for round in 0..<5 {
      #expect(try self.actor(openedAs: "container \(round)") == actor)
      host.killProcesses()
      #expect(try self.actor(openedAs: round.isMultiple(of: 2) ? "" : "one") == actor)
    }
  }

  @Test("keeps its actor if two containers have it open at once")
  func together() throws {
    let store = try Store.create(on: host, configuration: SharedModeTests.shared)
    var other = host.otherProcess
    other.machine = "container"
    let second = try Store.open(
      at: "/store", configuration: host.configured(SharedModeTests.shared), environment: other)
    #expect(try second.actor == store.actor)
    try second.put("k", "x")
    #expect(try store.text("k") == "x")
  }

  @Test(
    "gets another actor if the kernel cannot identify it: a volume image may come from another machine",
    arguments: [false, true])
  func images(readsFirst: Bool) throws {
    let store = try Store.create(on: host)
    let actor = try store.actor
    try store.put("k", "x", durability: .full)
    host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
    let clone = try host.cloned()
    #expect(try self.actor(openedAs: "one") == actor)
    var environment = clone.environment
    environment.machine = "two"
    if readsFirst {
      // From here on this kernel has marked it in memory, too: that alone does not show where it was before.
      let readOnly = host.configured(Configuration(mode: .readOnly))
      try Store.open(at: "/store", configuration: readOnly, environment: environment).close()
    }
    let copy = try Store.open(at: "/store", configuration: host.configured(), environment: environment)
    let own = try copy.actor
    #expect(own != actor)
    try copy.close()
    // By now the new location is known.
    environment.machine = "a container on it"
    let again = try Store.open(at: "/store", configuration: host.configured(), environment: environment)
    #expect(try again.actor == own)
    try again.close()
  }

  @Test("gets another actor if one about to become it was killed before that was durable")
  func killedBefore() throws {
    let store = try Store.create(on: host)
    let actor = try store.actor
    try store.put("k", "x", durability: .full)
    host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
    let clone = try host.cloned()
    let plan = FaultPlan()
    plan.fail(.rename, on: "/STORE", forever: true)
    var failing = clone.environment(over: FaultingStorage(clone.storage, plan: plan))
    failing.machine = "two"
    let environment = failing
    #expect(throws: StoreError.self) {
      try Store.open(at: "/store", configuration: host.configured(), environment: environment)
    }
    clone.killProcesses()
    var other = clone.environment
    other.machine = "two"
    let copy = try Store.open(at: "/store", configuration: host.configured(), environment: other)
    #expect(try copy.actor != actor)
    try copy.close()
  }

  @Test(
    "gets another actor if its directory was copied, in any container",
    arguments: ["one", "container"])
  func copies(machine: String) throws {
    let store = try Store.create(on: host)
    let actor = try store.actor
    try store.close()
    try host.storage.copyTree(from: "/store", to: "/copy")
    // A reader that comes first makes the kernel mark the copy as its own.
    try Store.open(
      at: "/copy", configuration: host.configured(Configuration(mode: .readOnly)),
      environment: environment(machine)
    ).close()
    #expect(try self.actor(openedAs: machine, "/copy") != actor)
    #expect(try self.actor(openedAs: machine) == actor)
  }
}

import Replication
import SyncStore
import Testing

/// The code of `ReplicationBetweenCopies.md`. `GuideTests` checks that both are equal.
@Suite struct ReplicationSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  // snippet
  func follow(_ name: String, on node: Node) async {
    for await state in node.states(of: name) {
      switch state.phase {
      case .live: print("\(name) is in step")
      case .connecting: print("calling \(name)")
      case .catchingUp: print("\(state.progress.receivedRecords) records from \(name)")
      case .waiting:
        guard let error = state.lastError else { continue }
        switch error.code {
        case .network, .timeout, .unavailable: print("\(name) is away; attempts: \(state.failures)")
        case .clockSkew: print("check the clocks: \(error.message)")
        case .notAMember, .otherStore:
          print("\(name) is no member at that address: \(error.message)")
          node.keepInStep(KeepPolicy(peers: []))  // no more attempts, until a person has decided
        default: print(error.message)
        }
      }
    }
  }
  // end

  @Test(
    "a peer that is away is tried again until it is live, and one that was revoked is not",
    .timeLimit(.minutes(2)))
  func peerStates() async throws {
    let hubStore = try Store.create(at: here + "hub")
    try Node.prepare(hubStore, name: "hub")
    var hub = try Node(store: hubStore)
    let address = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let joined = try await Node.join(Node.invite(to: hubStore), at: here + "edge", name: "edge")
    await hub.stop()
    let edge = try Node(store: joined.store)
    let reader = Task { [edge] in await follow("hub", on: edge) }
    func state(_ isMeant: (PeerState) -> Bool) async -> PeerState? {
      for await state in edge.states(of: "hub") where isMeant(state) { return state }
      return nil
    }
    edge.keepInStep(KeepPolicy(retry: 20...50))
    let away = try #require(await state { $0.phase == .waiting && $0.failures > 1 })
    #expect(away.lastError?.code == .network && away.nextTry != nil && away.lastSuccess == nil)

    hub = try Node(store: hubStore)
    _ = try await hub.start(listen: address)
    let live = try #require(await state { $0.phase == .live })
    #expect(live.lastError == nil && live.failures == 0 && live.lastSuccess != nil)

    try Membership(hubStore).revoke("edge")
    // The reader above has the node give up once it is refused. A slow reader, as this one may be, gets the
    // newest state alone: perhaps not the one between.
    for await state in edge.states {
      if let peer = state["hub"], peer.lastError?.code == .notAMember { #expect(peer.failures > 0) }
      if state.peers.isEmpty { break }
    }
    await edge.stop()
    await reader.value
    await hub.stop()
    try joined.store.close()
    try hubStore.close()
  }

  @Test("the examples of the page behave as described")
  func run() async throws {
    // snippet
    let hubStore = try Store.create(at: here + "hub")
    try Node.prepare(hubStore, name: "hub")  // once; what is there already stays
    let hub = try Node(store: hubStore)
    let address = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    print("listening on \(address)")
    // end
    // snippet
    let token = try Node.invite(to: hubStore, lifetime: 600)
    let joined = try await Node.join(token, at: here + "edge", name: "edge")
    let edgeStore = joined.store
    let edge = try Node(store: edgeStore)
    // end
    // snippet
    func openOrJoin(at path: String, token: @autoclosure () -> String) async throws -> Store {
      if try Store.exists(at: path) { return try Store.open(at: path) }
      return try await Node.join(token(), at: path, name: "edge").store
    }
    // end
    #expect(try await openOrJoin(at: here + "edge", token: "") === edgeStore)
    // snippet
    try edgeStore.put("reading/1", 21.5)
    let report = try await edge.synchronize(with: "hub")  // .push or .pull for one way
    print(report.sentRecords, report.receivedRecords, report.digest)
    let isInStep = try edgeStore.digest() == hubStore.digest()
    // end
    #expect(report.sentRecords > 0)
    #expect(isInStep)
    #expect(try hubStore.get("reading/1", default: 0.0) == 21.5)
    // snippet
    let differences = try await edge.compare(with: "hub") { found in
      for difference in found { print(difference.key, difference.winner) }
    }
    print(differences.toSend.keys, differences.toReceive.keys)
    // end
    #expect(differences.isEmpty)
    // snippet
    edge.keepInStep()  // every peer that it knows an address of, live
    for await state in edge.states(of: "hub") where state.phase == .live { break }
    try edgeStore.put("reading/2", 22.5)  // a moment later the hub has it, durably
    // end
    let begin = ContinuousClock.now
    while try !hubStore.contains("reading/2"), begin.duration(to: .now) < .seconds(60) {
      try await Task.sleep(for: .milliseconds(20))
    }
    #expect(try hubStore.contains("reading/2"))
    #expect(hub.state.connected.count == 1)
    // snippet
    for device in hub.state.connected {
      let name = try Membership(hubStore).member(device)?.name
      print(name ?? "?", "is connected")
    }
    // end
    // snippet
    let boat = try await Node.join(
      Node.invite(to: hubStore), at: here + "boat", name: "boat", scope: KeyScope(prefixes: ["reading/"]))
    let boatNode = try Node(store: boat.store)
    _ = try await boatNode.synchronize(with: "hub")
    _ = try await boatNode.widen(to: nil, from: "hub")  // all keys from now on
    // end
    #expect(try boat.store.scope == nil && boat.store.contains("reading/2"))
    // snippet
    await edge.stop()
    await hub.stop()
    // end
    // snippet
    for lost in try hubStore.conflicts() {
      print(lost.key?.description ?? "", lost.value ?? [])
    }
    // end
    #expect(try hubStore.conflicts().isEmpty)
    // snippet
    let membership = Membership(edgeStore)
    try membership.add(Peer(name: "office", addresses: ["office.example:7420"]))
    // end
    #expect(try membership.peers().contains { $0.name == "office" })
    // snippet
    let members = Membership(hubStore)
    for member in try members.members() { print(member.name, member.right) }
    try members.setRight(.readOnly, of: "boat")  // its own writes are refused from now on
    try members.rename("boat", to: "vessel")
    try members.revoke("edge")  // on every copy that hears of it
    // end
    #expect(try members.member(named: "edge") == nil)
    try edgeStore.close()
    try hubStore.close()
  }

  @Test("two concurrent values are merged into one, once, for both copies")
  func conflicts() async throws {
    let hubStore = try Store.create(at: here + "hub")
    try Node.prepare(hubStore, name: "hub")
    let hub = try Node(store: hubStore)
    _ = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let edgeStore = try await Node.join(Node.invite(to: hubStore), at: here + "edge", name: "edge").store
    let edge = try Node(store: edgeStore)
    try hubStore.put("limit/cpu", 7)
    try await Task.sleep(for: .milliseconds(2))
    try edgeStore.put("limit/cpu", 9)
    _ = try await edge.synchronize(with: "hub")
    func settle() throws {
      // snippet
      for lost in try hubStore.conflicts() {
        guard let key = lost.key, KeyRange(prefix: "limit/").contains(key),
          let other = try lost.decoded(as: Int.self)
        else { continue }
        try hubStore.transaction { transaction in
          let mark = try Key("settled/\(lost.dot)")
          guard try transaction.put(mark, true, expecting: .absent, expiration: .after(.days(31))) != nil
          else { return }
          try transaction.update(key, default: other) { limit in limit = min(limit, other) }
        }
      }
      // end
    }
    #expect(try hubStore.conflicts().count == 1)
    try settle()
    _ = try await edge.synchronize(with: "hub")
    #expect(try hubStore.get("limit/cpu", default: 0) == 7 && edgeStore.get("limit/cpu", default: 0) == 7)
    try hubStore.put("limit/cpu", 20)
    try settle()
    #expect(try hubStore.get("limit/cpu", default: 0) == 20)
    await edge.stop()
    await hub.stop()
    try edgeStore.close()
    try hubStore.close()
  }
}

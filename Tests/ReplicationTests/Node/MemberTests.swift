import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite struct MemberTests {
  private static let device = DeviceID(bytes: (0..<32).map { UInt8($0) })!

  @Test(arguments: Member.Right.allCases, [[], ["a:1"], (0..<8).map { "host\($0):7420" }])
  func `a member record round-trips`(right: Member.Right, addresses: [String]) throws {
    let member = Member(
      device: Self.device, name: "boot", right: right, addresses: addresses, joined: 1_763_000_000_000)
    #expect(try Member(device: Self.device, bytes: member.bytes) == member)
  }

  @Test func `the bytes are those of schemas/members.md`() {
    let member = Member(device: Self.device, name: "ab", right: .readOnly, addresses: ["h:1"], joined: 0x0102)
    #expect(Hex.string(of: member.bytes) == "01010201000000000000026162" + "0103683a31")
  }

  @Test func `a right from a newer version admits no peer`() throws {
    var bytes = Member(device: Self.device, name: "a", right: .readWrite, addresses: [], joined: 0).bytes
    bytes[1] = 77
    #expect(try Member(device: Self.device, bytes: bytes).right == .revoked)
  }

  @Test func `F78 a record that is truncated, or has no name, is refused`() {
    let bytes = Member(device: Self.device, name: "name", right: .readWrite, addresses: ["h:1"], joined: 5)
      .bytes
    for count in 0..<bytes.count {
      #expect(throws: DecodingFailure.self) { try Member(device: Self.device, bytes: Array(bytes[..<count])) }
    }
    let nameless = Member(device: Self.device, name: "", right: .readWrite, addresses: [], joined: 5).bytes
    #expect(throws: DecodingFailure.self) { try Member(device: Self.device, bytes: nameless) }
  }

  @Test func `members and peers are stored, named and removed`() throws {
    let copy = try TestCopy.first("boot")
    let membership = Membership(copy.store)
    #expect(try membership.members().map(\.name) == ["boot"])
    #expect(try membership.freeName("boot", for: Self.device) == "boot-2")
    #expect(try membership.freeName("boot", for: copy.node.device) == "boot")
    #expect(try membership.freeName(String(repeating: "é", count: 32), for: Self.device).utf8.count == 64)
    try membership.add(Peer(name: "shed", addresses: ["10.0.0.1:7420"]))
    #expect(try membership.peers() == [Peer(name: "shed", addresses: ["10.0.0.1:7420"])])
    #expect(try membership.remove(peer: "shed"))
    #expect(try !membership.remove(peer: "shed"))
    #expect(throws: ReplicationError.self) { try membership.add(Peer(name: "a b", addresses: ["h:1"])) }
    #expect(throws: ReplicationError.self) { try membership.add(Peer(name: "ab", addresses: ["h:0"])) }
  }

  @Test func `a member's new name reaches every copy, and undoes no concurrent revocation`() async throws {
    let (server, client, _) = try await pair()
    let (here, there) = (Membership(server.store), Membership(client.store))
    try here.put(Member(device: Self.device, name: "boat", right: .readWrite, addresses: [], joined: 0))
    _ = try await client.node.synchronize(with: "first")
    try here.revoke("boat")
    // Without knowing of the revocation, and later.
    #expect(try there.rename("boat", to: "ship"))
    #expect(try !there.rename("ship", to: "ship"))
    #expect(try there.member(Self.device)?.right == .readWrite)
    _ = try await client.node.synchronize(with: "first")
    for membership in [here, there] {
      let member = try #require(try membership.member(Self.device))
      #expect(member.name == "ship" && member.right == .revoked)
      #expect(try membership.members().map(\.name) == ["first", "second", "ship"])
      #expect(try membership.freeName("ship", for: client.node.device) == "ship-2")
    }
    // A copy that may not decide about members renames none.
    try here.setRight(.readOnly, of: "second")
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    #expect(throws: ReplicationError.self) { try there.rename("ship", to: "boat") }
    await server.node.stop()
  }

  @Test func `a peer is renamed with its member, or alone where it stands for another`() async throws {
    let (server, client, address) = try await pair()
    let membership = Membership(client.store)
    // The inviter is a peer under the member's name, pinned to its key.
    #expect(try membership.rename("first", to: "hub"))
    #expect(try membership.peers().map(\.name) == ["hub"])
    #expect(try membership.members().map(\.name) == ["hub", "second"])
    _ = try await client.node.synchronize(with: "hub")
    // An alias of it, and an address without a member.
    var alias = Peer(name: "pier", addresses: [address.description])
    alias.device = server.node.device
    try membership.add(alias)
    try membership.add(Peer(name: "shed", addresses: ["10.0.0.1:7420"]))
    #expect(try membership.rename("pier", to: "quay"))
    #expect(try membership.rename("shed", to: "hut"))
    #expect(try membership.peers().map(\.name) == ["hub", "hut", "quay"])
    #expect(try membership.members().map(\.name) == ["hub", "second"])
    for (name, newName) in [("nobody", "x"), ("hub", "second"), ("hut", "hub"), ("hub", "a b"), ("hub", "")] {
      #expect(throws: ReplicationError.self) { try membership.rename(name, to: newName) }
    }
    #expect(try membership.peers().map(\.name) == ["hub", "hut", "quay"])
    await server.node.stop()
  }

  @Test func `a name that cannot be read leaves the member the one of its record`() throws {
    let copy = try TestCopy.first("boot")
    let device = copy.node.device
    for bytes in [[], [1], [0, 1, 0x61], [1, 2, 0x61], [1, 0], [1, 3, 0x61, 0x20, 0x62]] as [[UInt8]] {
      try copy.store.putReserved(ReservedKey.memberName(device), bytes)
      #expect(try Membership(copy.store).member(device)?.name == "boot")
      #expect(try Membership(copy.store).members().map(\.name) == ["boot"])
    }
    // What a newer version may add.
    try copy.store.putReserved(ReservedKey.memberName(device), [2, 2, 0x61, 0x62, 0xFF])
    #expect(try Membership(copy.store).member(device)?.name == "ab")
    #expect(Hex.string(of: MemberNameRecord.bytes(of: "ab")) == "01026162")
  }

  @Test(arguments: [false, true])
  func `two processes that prepare a store at once agree on its keys`(isMade: Bool) async throws {
    for _ in 0..<8 {
      let directory = TemporaryDirectory()
      let path = directory.path + "/store"
      if isMade {
        try Store.create(at: path).close()
      } else {
        _ = try DiskStorage().createDirectory(path)
      }
      // Two openings, not two instances: a process has only one.
      let made = try await withThrowingTaskGroup(of: [String].self) { group in
        for process in 0..<4 {
          group.addTask {
            var configuration = SyncStore.Configuration()
            configuration.mode = .shared
            var environment = Environment.real()
            environment.process += 1_000 * process
            let keys =
              isMade
              ? StoreKeys(
                try Store.open(at: path, configuration: configuration, environment: environment))
              : StoreKeys(path: path, storage: environment.storage)
            return [try keys.makeIdentity().pem, try keys.makeGroupKeys().text]
          }
        }
        return try await group.reduce(into: [[String]]()) { $0.append($1) }
      }
      #expect(Set(made).count == 1)
      let kept = StoreKeys(path: path, storage: DiskStorage())
      #expect(try made.first == [kept.identity().pem, kept.groupKeys().text])
    }
  }

  @Test func `the keys of a store are readable by its owner alone, and are found again`() throws {
    let copy = try TestCopy.first()
    let keys = StoreKeys(copy.store)
    #expect(try keys.identity().id == copy.node.device)
    #expect(try keys.makeGroupKeys().epochs == [1])
    let storage = copy.store.environment.storage
    for file in ["/keys/device.pem", "/keys/group"] {
      #expect(try storage.status(copy.store.path + file)?.permissions == 0o600)
    }
    #expect(try storage.status(copy.store.path + "/keys")?.permissions == 0o700)
  }

  @Test func `a store without keys has no node`() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/s")
    #expect { _ = try Node(store: store) } throws: { ($0 as? ReplicationError)?.code == .cryptography }
  }

  @Test
  func `a member that connects while the store cannot be read is neither treated as a stranger nor admitted`()
    throws
  {
    let copy = try TestCopy.first()
    let (dialled, accepted) = (
      PeerAuthorizer(store: copy.store, target: DialTarget(device: nil, name: "x")),
      PeerAuthorizer(store: copy.store)
    )
    try copy.store.close()
    #expect(!dialled.authorizes(copy.node.device, applicationProtocol: WireLimits.sessionProtocol))
    #expect(accepted.authorizes(copy.node.device, applicationProtocol: WireLimits.sessionProtocol))
    for gate in [dialled, accepted] {
      #expect(gate.member == nil && gate.failure?.store?.code == .closed)
    }
    #expect(!accepted.authorizes(copy.node.device, applicationProtocol: WireLimits.joinProtocol))
  }

  @Test
  func `F81 while a lost record may have revoked a member no member is admitted, and peers can be dialled`()
    throws
  {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host)
    let device = try #require(DeviceID(bytes: [UInt8](repeating: 9, count: 32)))
    let membership = Membership(store)
    try membership.put(
      Member(device: device, name: "other", right: .readWrite, addresses: ["h:1"], joined: 0))
    for key in ["lost 1", "lost 2"] as [Key] { try store.put(key, "value", durability: .full) }
    try store.close()
    host.killProcesses()
    let path = "/store/journal/0000000000000001.segment"
    let bytes = try host.storage.open(path, .readOnly).read(1 << 20, at: 0)
    let first = try #require(bytes.firstRange(of: Array("lost 1".utf8))?.lowerBound)
    let last = try #require(bytes.firstRange(of: Array("lost 2".utf8))?.upperBound)
    let file = try host.storage.open(path, .readWrite)
    try file.write([UInt8](repeating: 0xEE, count: last - first), at: first)
    try file.sync()
    let damaged = try Store.open(on: host)
    // The index is intact, and names the lost keys.
    #expect(
      PeerAuthorizer(store: damaged).authorizes(device, applicationProtocol: WireLimits.sessionProtocol))
    #expect(try Membership(damaged).member(named: "other")?.device == device)
    try damaged.close()
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    let again = try Store.open(on: host)
    let (dialled, accepted) = (
      PeerAuthorizer(store: again, target: DialTarget(device: device, name: "other")),
      PeerAuthorizer(store: again)
    )
    #expect(
      dialled.authorizes(device, applicationProtocol: WireLimits.sessionProtocol)
        && dialled.member?.name == "other")
    #expect(
      accepted.authorizes(device, applicationProtocol: WireLimits.sessionProtocol),
      "to be told why it is refused")
    #expect(accepted.member == nil && accepted.failure?.store?.code == .damaged)
    #expect(!accepted.authorizes(device, applicationProtocol: WireLimits.joinProtocol))
    #expect(try Membership(again).members().map(\.name) == ["other"])
  }

  @Test func `F81 a revoked or read-only copy no longer vouches for members`() throws {
    let copy = try TestCopy.first()
    let membership = Membership(copy.store)
    var own = try #require(try membership.own())
    try membership.put(
      Member(device: Self.device, name: "other", right: .readWrite, addresses: [], joined: 0))
    #expect(refusal { try membership.revoke(own.name) } == .notAllowed)
    for right in [Member.Right.readOnly, .revoked] {
      own.right = right
      try membership.put(own)
      #expect(refusal { try membership.revokeAndRenewKeys("other") } == .notAllowed)
      #expect(
        refusal { _ = try Node.invite(to: copy.store, addresses: [Endpoint(host: "h", port: 1)]) }
          == .notAllowed)
    }
    #expect(try membership.member(Self.device)?.right == .readWrite)
    #expect(try StoreKeys(copy.store).groupKeys().epochs == [1])
  }

  private func refusal(_ body: () throws -> Void) -> ReplicationError.Code? {
    #expect(throws: ReplicationError.self, performing: body)?.code
  }
}

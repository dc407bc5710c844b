import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Group keys that a relay carries to members that missed a new epoch.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayKeyTests {
  private static let place = WrappedGroupKey.Place(
    relay: RelayID(bytes: Array(repeating: 1, count: 16))!, name: "k/0")

  private func wrapped(for recipient: DeviceIdentity, by sender: DeviceIdentity) throws -> WrappedGroupKey {
    try WrappedGroupKey(
      Array(0..<32), epoch: 7, for: recipient.wrappingKey().publicKey, at: Self.place, by: sender,
      random: Array(repeating: 9, count: 32))
  }

  @Test func `only the member that a group key is for can read it`() throws {
    let (sender, recipient, other) = (
      try DeviceIdentity.generate(), try DeviceIdentity.generate(), try DeviceIdentity.generate()
    )
    let object = try WrappedGroupKey(bytes: wrapped(for: recipient, by: sender).bytes)
    #expect(object.epoch == 7 && object.sender == sender.publicKey)
    #expect(try object.key(for: recipient, at: Self.place) == Array(0..<32))
    #expect(throws: ReplicationError.self) { try object.key(for: other, at: Self.place) }
    var elsewhere = Self.place
    elsewhere.name = "k/1"
    #expect(throws: ReplicationError.self) { try object.key(for: recipient, at: elsewhere) }
  }

  @Test func `a group key that was changed anywhere is refused`() throws {
    let (sender, recipient) = (try DeviceIdentity.generate(), try DeviceIdentity.generate())
    let bytes = try wrapped(for: recipient, by: sender).bytes
    #expect(bytes.count == WrappedGroupKey.size)
    for index in bytes.indices {
      var changed = bytes
      changed[index] ^= 1
      #expect(throws: (any Error).self, "byte \(index)") {
        try WrappedGroupKey(bytes: changed).key(for: recipient, at: Self.place)
      }
      #expect(throws: DecodingFailure.self) { try WrappedGroupKey(bytes: Array(bytes.prefix(index))) }
    }
  }

  @Test func `a public key of no group is refused`() throws {
    let sender = try DeviceIdentity.generate()
    for key in [[UInt8](repeating: 0, count: 32), [1] + [UInt8](repeating: 0, count: 31), [1, 2, 3]] {
      #expect(throws: ReplicationError.self) {
        try WrappedGroupKey(
          Array(0..<32), epoch: 7, for: key, at: Self.place, by: sender,
          random: Array(repeating: 9, count: 32))
      }
    }
  }

  @Test func `a member that missed a new epoch gets its key through the relay, a revoked one does not`()
    async throws
  {
    let fleet = try await RelayFleet()
    let address = try await fleet.first.listen()
    _ = address
    let third = try await TestCopy.joined(try Node.invite(to: fleet.first.store), "third")
    await fleet.first.node.stop()
    await third.node.stop()
    for copy in [fleet.first, fleet.second, third] { _ = try await fleet.client(copy).sync() }
    _ = try await fleet.client(fleet.second).sync()
    _ = try await fleet.client(third).sync()
    try Membership(fleet.first.store).revokeAndRenewKeys("third")
    try fleet.first.put("secret", "one")
    _ = try await fleet.client(fleet.first).sync()
    let read = try await fleet.client(fleet.second).sync()
    #expect(read.setAside.isEmpty)
    #expect(try fleet.second.get("secret") == "one")
    let refused = try await fleet.client(third).pull()
    #expect(refused.setAside.contains { $0.reason.contains("group key") })
    #expect(try third.get("secret") == nil)
    let format = try #require(try await fleet.client(fleet.first).format(creates: false))
    let (device, names) = (try StoreKeys(third.store).identity().id, try await fleet.objects("k/"))
    for epoch in try StoreKeys(fleet.first.store).groupKeys().epochs {
      #expect(!names.contains(format.keyName(epoch, for: device)))
    }
  }

  @Test func `a key from a device that is no member is ignored`() async throws {
    let fleet = try await RelayFleet()
    for copy in [fleet.first, fleet.second] { _ = try await fleet.client(copy).sync() }
    try fleet.first.put("a", "one")
    try StoreKeys(fleet.first.store).changeGroupKeys { ring throws(ReplicationError) in
      _ = try ring.beginEpoch(Array(repeating: 5, count: GroupKeyRing.keyBytes), random: 1)
    }
    _ = try await fleet.client(fleet.first).sync()
    let stranger = try DeviceIdentity.generate()
    let objects = try DirectoryStore(at: fleet.place.path)
    let relay = try #require(try fleet.first.store.knownRelays().first)
    let ring = try StoreKeys(fleet.first.store).groupKeys()
    for name in try await fleet.objects("k/") {
      let forged = try WrappedGroupKey(
        Array(repeating: 6, count: 32), epoch: ring.current,
        for: StoreKeys(fleet.second.store).identity().wrappingKey().publicKey,
        at: WrappedGroupKey.Place(relay: relay, name: name), by: stranger,
        random: Array(repeating: 9, count: 32))
      _ = try await objects.put(name, forged.bytes, if: .always)
    }
    let read = try await fleet.client(fleet.second).pull()
    #expect(read.setAside.contains { $0.object.hasPrefix("k/") && $0.reason.contains("no member") })
    #expect(try StoreKeys(fleet.second.store).groupKeys().epochs.count == 1)
    #expect(try fleet.second.get("a") == nil)
  }
}

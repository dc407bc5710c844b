import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Many members connected to one node.
@Suite(.timeLimit(.minutes(Patience.minutes(4))), .serialized) struct ManyMembersTests {
  private static let count = 60
  /// Bytes per member: the bound promised for the hub's side. Here the process holds both ends.
  private static let bytesEach = 100 << 10

  @Test func `connected members cost little memory each, and all receive new writes`()
    async throws
  {
    let hub = try TestCopy.first()
    for number in 0..<20 { try hub.put("key \(number)", "value") }
    let address = try await hub.listen()
    let identities = try (0...Self.count).map { _ in try DeviceIdentity.generate() }
    for (number, identity) in identities.enumerated() {
      try Membership(hub.store).put(
        Member(device: identity.id, name: "m\(number)", right: .readWrite, addresses: [], joined: 0))
    }
    let members = LoopBound(ThinMembers(), to: try EventLoop.shared())
    let keys = try StoreKeys(hub.store).groupKeys()
    // One-time allocations are not attributed to members.
    try await ThinMember.connect(identities[0], to: address, hub.store.id, keys, members)
    let before = try Self.anonymousBytes()
    for identity in identities.dropFirst() {
      try await ThinMember.connect(identity, to: address, hub.store.id, keys, members)
    }
    let each = (try Self.anonymousBytes() - before) / Self.count
    // Process memory is attributable only where nothing else runs: `make memory`.
    if ProcessInfo.processInfo.environment["MEASURE_MEMORY"] != nil {
      #expect(each < Self.bytesEach, "\(each) bytes for each member and its other end")
    }
    let counts = try await Self.received(members)
    try hub.put("news", "for all")
    while try await zip(Self.received(members), counts).contains(where: { $0 <= $1 }) {
      try await Task.sleep(for: .milliseconds(5))
    }
    await hub.node.stop()
  }

  private static func received(_ members: LoopBound<ThinMembers>) async throws -> [Int] {
    try await on(try EventLoop.shared()) { members.value.list.map(\.received) }
  }

  private static func anonymousBytes() throws -> Int {
    let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
    let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") })
    return try #require(line.split(whereSeparator: { !$0.isNumber }).first.flatMap { Int($0) }) << 10
  }
}

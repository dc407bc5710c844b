import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// The bytes of a relay's objects against vectors that another implementation has made from schemas/relay.md.
@Suite struct RelayVectorTests {
  private struct Vectors: Decodable {
    struct Entry: Decodable {
      let mark, actor: String
      let sequence, position, records, time: UInt64
      let narrow: Bool
      let vector, floor: [String: UInt64]
    }
    struct Run: Decodable {
      let entries: [Entry]
      let bytes: String
    }
    struct Bytes: Decodable { let bytes: String }
    struct Head: Decodable { let deviceSeed, wrappingKey, bytes, signature: String }
    struct Table: Decodable {
      let size: UInt64
      let groups: [String]
      let bytes: String
    }
    struct Names: Decodable {
      let namingKey, hash, blob, device, key, object, mark: String
      let epoch: UInt32
    }
    struct GroupKey: Decodable { let senderSeed, recipientSeed, ephemeral, key, name, bytes: String }
    struct Join: Decodable {
      let inviterSeed, deviceSeed, ephemeral, nonce, secret, id, groupKey, groupKeys: String
      let token, invitation, request, answer, refusal: String
      let expires: UInt64
      let epoch: UInt32
    }

    let relay, store, stream: String
    let join: Join
    let run: Run
    let laterRun, checkpoint: Bytes
    let head: Head
    let table: Table
    let names: Names
    let groupKey: GroupKey
  }

  private let vectors: Vectors

  init() throws {
    let path = Checkout.top + "/schemas/vectors/relay.json"
    vectors = try JSONDecoder().decode(Vectors.self, from: Data(contentsOf: URL(fileURLWithPath: path)))
  }

  private func bytes(_ hex: String) -> [UInt8] {
    let digits = Array(hex.utf8)
    return stride(from: 0, to: digits.count, by: 2).compactMap {
      UInt8(String(decoding: digits[$0..<$0 + 2], as: UTF8.self), radix: 16)
    }
  }

  private func vector(_ pairs: [String: UInt64]) throws -> VersionVector {
    VersionVector(
      Dictionary(
        uniqueKeysWithValues: try pairs.map { (try #require(ActorID(bytes: bytes($0.key))), $0.value) }))
  }

  @Test func `runs are read and written`() throws {
    let given = bytes(vectors.run.bytes)
    let run = try RelayRun(bytes: given)
    #expect(run.bytes == given && run.stream.bytes == bytes(vectors.stream) && run.previous == nil)
    #expect(run.entries.count == vectors.run.entries.count)
    for (number, (entry, stated)) in zip(run.entries, vectors.run.entries).enumerated() {
      #expect(entry.place.number == UInt64(number + 1) && entry.place.mark.bytes == bytes(stated.mark))
      #expect(entry.actor.bytes == bytes(stated.actor) && entry.sequence == stated.sequence)
      #expect(entry.position == stated.position && entry.records == stated.records)
      #expect(entry.isNarrow == stated.narrow && entry.time == stated.time)
      #expect(try entry.vector == vector(stated.vector) && entry.floor == vector(stated.floor))
    }
    #expect(run.entries.map { $0.digest == nil } == [true, false, true])
    #expect(run.entries.map(\.parts.count) == [0, 0, 1])
    let later = try RelayRun(bytes: bytes(vectors.laterRun.bytes))
    #expect(later.bytes == bytes(vectors.laterRun.bytes) && later.first == 7)
  }

  @Test func `heads are read, written and signed`() throws {
    let given = bytes(vectors.head.bytes)
    let head = try RelayHead(signedBytes: given)
    #expect(head.signedBytes == given)
    #expect(head.tried.count == 2 && head.runs.map(\.numbers) == [1...9, 10...10])
    #expect(head.wanted.map(\.size) == [1 << 34] && head.doomed.count == 1 && head.last?.number == 7)
    let identity = try DeviceIdentity(privateKey: bytes(vectors.head.deviceSeed))
    #expect(head.publicKey == identity.publicKey)
    #expect(try head.wrappingKey == identity.wrappingKey().publicKey)
    let relay = try #require(RelayID(bytes: bytes(vectors.relay)))
    let signature = try identity.signature(of: RelayClient.signedText(given, relay))
    #expect(signature == bytes(vectors.head.signature))
  }

  @Test func `tables of checkpoints and of large values are read and written`() throws {
    let checkpoint = try RelayCheckpoint(table: bytes(vectors.checkpoint.bytes))
    #expect(checkpoint.bytesOfTable == bytes(vectors.checkpoint.bytes))
    #expect(checkpoint.state.place.number == 9 && checkpoint.bytes == 555 && checkpoint.totals.count == 2)
    let table = try RelayBlobTable(payloads: [bytes(vectors.table.bytes)], size: vectors.table.size)
    #expect(table.payloads == [bytes(vectors.table.bytes)])
    #expect(table.groups.map(\.hash.bytes) == vectors.table.groups.map { bytes($0) })
  }

  @Test func `names hide what they name`() throws {
    let (relay, names) = (bytes(vectors.relay), vectors.names)
    let format = RelayFormat(random: relay + bytes(names.namingKey))
    #expect(format.blobName(try #require(BlobHash(bytes: bytes(names.hash)))) == names.blob)
    let device = try #require(DeviceID(bytes: bytes(names.device)))
    #expect(format.keyName(names.epoch, for: device) == names.key)
  }

  @Test func `objects are encrypted for their place`() throws {
    let store = try #require(StoreID(bytes: bytes(vectors.store)))
    let relay = try #require(RelayID(bytes: bytes(vectors.relay)))
    let keys = GroupKeyRing(key: Array(0..<32))
    let object = try RelaySeal(relay: relay, store: store).encrypt(
      [1, 2, 3], as: vectors.names.object, keys: keys, randomness: Array(repeating: 7, count: 32))
    // The mark of the batch, at byte 40.
    #expect(Array(object[40..<56]) == bytes(vectors.names.mark))
    #expect(Array(object[24..<40]) == bytes(vectors.relay) && object[1] == 4)
  }

  @Test func `group keys are read and written`() throws {
    let stated = vectors.groupKey
    let relay = try #require(RelayID(bytes: bytes(vectors.relay)))
    let place = WrappedGroupKey.Place(relay: relay, name: stated.name)
    let (sender, recipient) = (
      try DeviceIdentity(privateKey: bytes(stated.senderSeed)),
      try DeviceIdentity(privateKey: bytes(stated.recipientSeed))
    )
    let object = try WrappedGroupKey(bytes: bytes(stated.bytes))
    #expect(try object.key(for: recipient, at: place) == bytes(stated.key))
    let own = try WrappedGroupKey(
      bytes(stated.key), epoch: object.epoch, for: recipient.wrappingKey().publicKey, at: place, by: sender,
      random: bytes(stated.ephemeral))
    #expect(own.bytes == bytes(stated.bytes))
  }

  @Test func `invitations, requests to join and answers are read and written`() throws {
    let stated = vectors.join
    let relay = try #require(RelayID(bytes: bytes(vectors.relay)))
    let (secret, random) = (bytes(stated.secret), bytes(stated.ephemeral))
    let (inviter, device) = (
      try DeviceIdentity(privateKey: bytes(stated.inviterSeed)),
      try DeviceIdentity(privateKey: bytes(stated.deviceSeed))
    )
    let token = try Invitation(text: stated.token)
    #expect(token.text == stated.token && token.id == bytes(stated.id) && token.inviter == inviter.id)
    let ticket = try #require(token.relay)
    #expect(ticket.relay == relay && ticket.epoch == stated.epoch && ticket.region == "eu-1")
    #expect(ticket.fingerprint == RelayTicket.fingerprint(of: bytes(stated.groupKey), secret: secret))
    let invitation = try RelayInvitation(bytes: bytes(stated.invitation))
    #expect(invitation.isGenuine(in: relay) && invitation.expires == stated.expires)
    #expect(try RelayInvitation(token.pending, by: inviter, in: relay).bytes == bytes(stated.invitation))
    let request = try RelayJoinRequest(bytes(stated.request), secret, in: relay)
    #expect(try request == RelayJoinRequest(of: device, called: "third"))
    #expect(
      try request.encrypted(secret, in: relay, by: device, nonce: bytes(stated.nonce))
        == bytes(stated.request))
    let answer = try RelayJoinAnswer(bytes(stated.answer), for: device, secret, in: relay)
    #expect(answer.accept?.groupKeys == bytes(stated.groupKeys) && answer.answerer == inviter.id)
    #expect(answer.accept?.memberName == "third" && answer.accept?.inviterName == "first")
    for (answer, given) in [(answer, stated.answer), (RelayJoinAnswer(nil, by: inviter.id), stated.refusal)] {
      #expect(
        try answer.encrypted(for: request, secret, in: relay, random: random) == bytes(given))
    }
  }
}

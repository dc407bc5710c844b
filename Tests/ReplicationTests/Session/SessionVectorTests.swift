import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

/// `schemas/vectors/session.json`: a whole sync, frame by frame, made by another implementation of
/// `schemas/wire.md` and `schemas/wire-batch.md` with the keys it lists.
@Suite("The golden session") struct SessionVectorTests {
  struct Vector: Decodable {
    struct Step: Decodable {
      var from, name, frame: String
      var payload: String?
    }
    var group_key, store, client, server, digest: String
    var epoch: UInt32
    var randomness: [String]
    var frames: [Step]
  }

  private let vector: Vector
  private let keys: GroupKeyRing
  private let messages: [(step: Vector.Step, message: Message)]

  init() throws {
    vector = try Checkout.vector("session.json")
    var keys = GroupKeyRing(key: [UInt8](repeating: 0, count: 32))
    try keys.insert(Self.bytes(vector.group_key), epoch: vector.epoch)
    self.keys = keys
    messages = try vector.frames.map { step in
      let bytes = try Self.bytes(step.frame)
      let length = bytes[..<4].reversed().reduce(0) { $0 << 8 | Int($1) }
      #expect(length == bytes.count - 4, "\(step.name)")
      let message = try #require(try Message.decode(Frame(type: bytes[4], payload: Array(bytes[5...]))))
      #expect(message.frame.bytes == bytes, "\(step.name): what is read is written again to the byte")
      return (step, message)
    }
  }

  private static func bytes(_ hex: String) throws -> [UInt8] { try #require(Hex.bytes(of: hex)) }

  private func actor(_ side: String) throws -> ActorID {
    try #require(ActorID(side == "client" ? vector.client : vector.server))
  }

  @Test("is what the program reads, encrypts and decrypts")
  func encrypted() throws {
    let store = try #require(StoreID(vector.store))
    var marks: [String: RoundMark] = [:]
    var randomness = vector.randomness.makeIterator()
    var opened = 0
    for (step, message) in messages {
      let context: BatchContext
      let sealed: [UInt8]
      switch message {
      case .roundBegin(let begin):
        marks[step.from] = begin.mark
        continue
      case .batch(let index, let bytes):
        let mark = try #require(marks[step.from])
        context = .records(store: store, sender: try actor(step.from), mark: mark, index: UInt64(index))
        sealed = bytes
      case .blobRange(let range):
        context = .blobRange(store: store, sender: try actor(step.from), offset: range.offset)
        sealed = range.encrypted
      default: continue
      }
      let payload = try Self.bytes(try #require(step.payload))
      #expect(try BatchCodec.decrypt(sealed, expecting: context, keys: keys) == payload, "\(step.name)")
      let drawn = randomness.next()
      let random = try Self.bytes(try #require(drawn))
      // Another zlib may compress to other bytes; uncompressed data has one form.
      if !BatchCodec.isDeflated(sealed) {
        #expect(try BatchCodec.encrypt(payload, as: context, keys: keys, randomness: random) == sealed)
      }
      opened += 1
    }
    #expect(opened == 3 && vector.randomness.count == 3)
  }

  @Test("ends in one state, whose digest follows from the records")
  func state() throws {
    var digest = StateDigest()
    var vectors: [VersionVector] = []
    var count = 0
    for (step, message) in messages {
      switch message {
      case .batch:
        let payload = try RecordCodec.decode(Self.bytes(try #require(step.payload)))
        for item in payload.records where !item.record.isTombstone { digest.add(item.record) }
        count += payload.records.count
      case .receipt(let receipt):
        #expect(receipt.state.digest.description == vector.digest && receipt.missingBlobs == 0)
        vectors.append(receipt.state.vector)
      default: continue
      }
    }
    #expect(digest.description == vector.digest && count == 5)
    #expect(vectors.count == 4 && Set(vectors).count == 1)
    #expect(try vectors[0][actor("client")] == 3 && vectors[0][actor("server")] == 2)
    // The hellos state live sync beforehand; their directions are each other's.
    guard case .hello(let client)? = messages.first?.message, case .hello(let server) = messages[1].message
    else {
      Issue.record("a session begins with two hellos")
      return
    }
    #expect(client.receives && client.sends && server.receives && server.sends)
    #expect(client.epochs.map(\.epoch) == [vector.epoch] && client.epochs == server.epochs)
    guard case .goodbye? = messages.last?.message else {
      Issue.record("the client ends it")
      return
    }
  }
}

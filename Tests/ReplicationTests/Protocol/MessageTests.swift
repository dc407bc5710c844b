import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

@Suite struct MessageTests {
  @Test("Every message, the records, the digest and the pairing match the golden vectors")
  func goldenVectors() throws {
    let golden = try Samples.golden()
    let made = Samples.vectors
    #expect(golden.keys.sorted() == made.keys.sorted())
    for (name, vector) in made { #expect(golden[name] == vector, "\(name)") }
  }

  @Test("Every message round-trips", arguments: Samples.messages.map(\.message))
  func roundTrip(message: Message) throws {
    #expect(try Message.decode(message.frame) == message)
  }

  @Test("Questions about held values, and answers, are bounded (F78)")
  func holdings() throws {
    func refuses(_ type: MessageType, _ payload: [UInt8]) {
      #expect(throws: DecodingFailure.self) {
        try Message.decode(Frame(type: type.rawValue, payload: payload))
      }
    }
    refuses(.holdingsWant, [7, 0])
    refuses(.holdingsWant, [7, 0x81, 0x08] + [UInt8](repeating: 0, count: 40))
    refuses(.holdings, [7, 2])
    refuses(.holdings, [7, 1, 0, 2, 0x04])
    refuses(.holdings, [7, 1, 0, 0x81, 0x08, 0])
    let held = (0..<WireLimits.holdings).map { $0 % 3 == 0 }
    let message = Message.holdings(
      HoldingsStated(number: .max, statement: .init(covered: VersionVector(), held: held)))
    #expect(try Message.decode(message.frame) == message)
  }

  @Test("Chunks and parts that do not belong to their blob are refused (F78)")
  func chunksAndParts() throws {
    let payload = RecipeCodec.encode(Samples.chunks)
    #expect(try RecipeCodec.decode(payload, offset: 700, size: 21_000).chunks == Samples.chunks)
    #expect(throws: DecodingFailure.self) { try RecipeCodec.decode(payload, offset: 701, size: 21_000) }
    #expect(throws: DecodingFailure.self) { try RecipeCodec.decode(payload, offset: .max, size: 21_000) }
    for chunks in [[], [BlobChunk(count: 0, name: Samples.chunks[0].name)]] {
      #expect(throws: DecodingFailure.self) {
        try RecipeCodec.decode(RecipeCodec.encode(chunks), offset: 0, size: 100)
      }
    }
    for parts in [
      [], [BlobPart(offset: 90, count: 11)], [BlobPart(offset: 101, count: 1)],
      [BlobPart(offset: 3, count: 0)],
    ] {
      let message = Message.partsWant(BlobPartsWanted(hash: Samples.hash, size: 100, parts: parts))
      #expect(throws: DecodingFailure.self) { try Message.decode(message.frame) }
    }
  }

  @Test("There is a sample of every type")
  func complete() {
    #expect(Set(Samples.messages.map(\.message.frame.type)) == Set(MessageType.allCases.map(\.rawValue)))
  }

  @Test(
    "F78 every truncated message is refused, except where its end is its encrypted part",
    arguments: Samples.messages.map(\.message))
  func truncation(message: Message) {
    let frame = message.frame
    let fixed: Int? =
      switch message {
      case .batch: 4
      case .blobRange, .recipe, .differingRecords, .keyStates: frame.payload.count - 3
      default: nil
      }
    // Long messages are lists of one kind of element.
    for count in 0..<frame.payload.count where count < 400 || count % 61 == 0 {
      let cut = Frame(type: frame.type, payload: Array(frame.payload.prefix(count)))
      if let fixed, count >= fixed { continue }
      #expect(throws: DecodingFailure.self, "\(count) bytes") { try Message.decode(cut) }
    }
  }

  @Test(
    "Trailing bytes are refused after a message, and ignored after a hello",
    arguments: Samples.messages.map(\.message))
  func surplus(message: Message) throws {
    var frame = message.frame
    frame.payload.append(0)
    switch message {
    case .hello, .foreignHello: #expect(try Message.decode(frame) == message)
    case .batch, .blobRange, .recipe, .differingRecords, .keyStates: break
    default: #expect(throws: DecodingFailure.self) { try Message.decode(frame) }
    }
  }

  @Test(
    "F78 any mutation of any message reads as some message or is refused",
    arguments: Samples.messages.map(\.message))
  func mutation(message: Message) {
    let seed: UInt64 = 0xF78
    var random = SplitMix64(seed: seed)
    for _ in 0..<500 {
      var frame = message.frame
      for _ in 0...random.next() % 3 where !frame.payload.isEmpty {
        let index = Int(random.next() % UInt64(frame.payload.count))
        switch random.next() % 3 {
        case 0: frame.payload[index] = UInt8(truncatingIfNeeded: random.next())
        case 1: frame.payload[index] ^= 1 << UInt8(random.next() % 8)
        default: frame.payload.replaceSubrange(index..<index, with: Array(repeating: 0xFF, count: 9))
        }
      }
      // Whatever decodes can be encoded, and then decodes to the same.
      if let read = try? Message.decode(frame) {
        #expect((try? Message.decode(read.frame)) == read, "seed \(seed)")
      }
    }
  }

  @Test("F82 a vector of as many actors as the limit is read, and one with one more is refused")
  func millionsOfActors() throws {
    func read(actors count: Int) throws {
      let actors = (0..<count).map { (ActorID(high: 1, low: UInt64($0)), UInt64(1)) }
      let message = Message.roundClose(
        RoundEnd(
          mark: Samples.mark, position: 1, batches: 0,
          vector: VersionVector(Dictionary(uniqueKeysWithValues: actors)), floor: VersionVector(),
          horizon: .zero))
      #expect(try Message.decode(message.frame) == message)
    }
    try read(actors: Limits.actors)
    #expect(throws: DecodingFailure.self) { try read(actors: Limits.actors + 1) }
  }

  @Test("The maximum number of large values in flight can be requested at once, and not one more")
  func blobsAskedFor() throws {
    func read(blobs count: Int) throws {
      let needs = (0..<count).map {
        BlobNeed(hash: BlobHash(bytes: Samples.bytes(32, from: UInt8($0 % 256)))!, size: 10)
      }
      #expect(try Message.decode(Message.blobWant(needs).frame) == .blobWant(needs))
    }
    try read(blobs: Limits.blobsInFlight)
    #expect(throws: DecodingFailure.self) { try read(blobs: Limits.blobsInFlight + 1) }
  }

  @Test("F78 the lists of a repair are refused beyond their bounds and out of order")
  func boundsOfRepair() {
    func expectRefused(_ type: MessageType, _ write: (inout ByteWriter) -> Void) {
      var writer = ByteWriter()
      write(&writer)
      #expect(throws: DecodingFailure.self, "\(type)") {
        try Message.decode(Frame(type: type.rawValue, payload: writer.bytes))
      }
    }
    expectRefused(.groupBuckets) { $0.writeVariable(UInt64(WireLimits.repairGroups) + 1) }
    expectRefused(.bucketPrints) { $0.writeVariable(UInt64(WireLimits.repairBuckets) + 1) }
    expectRefused(.bucketPrints) { writer in
      writer.writeVariable(1)
      writer.write(UInt16(7))
      writer.writeVariable(UInt64(WireLimits.repairPrints) + 1)
    }
    expectRefused(.differingRecords) { $0.writeVariable(UInt64(WireLimits.repairKeys) + 1) }
    expectRefused(.keyStates) { $0.writeVariable(UInt64(WireLimits.repairBuckets) + 1) }
    expectRefused(.keyStates) {
      $0.writeVariable(0)
      $0.writeVariable(UInt64(WireLimits.comparedKeys) + 1)
    }
    for message in [
      Message.groupBuckets([2, 2].map { GroupBuckets(group: $0, digests: Samples.digests(0)) }),
      .bucketPrints(BucketPrints(buckets: [4, 3], prints: [])),
      .bucketPrints(
        BucketPrints(buckets: [3], prints: [Samples.prints.prints[1], Samples.prints.prints[0]])),
      .differingRecords(DifferingRecords(hashes: [2, 1], encrypted: [])),
      .keyStates(KeyStates(buckets: [2, 1], hashes: [], encrypted: [])),
      .keyStates(KeyStates(buckets: [1], hashes: [2, 1], encrypted: [])),
    ] {
      #expect(throws: DecodingFailure.self) { try Message.decode(message.frame) }
    }
  }

  @Test("F103 an unknown message type is refused below 0x80 and ignored from there on")
  func unknownTypes() throws {
    #expect(throws: DecodingFailure.self) { try Message.decode(Frame(type: 0x0F, payload: [])) }
    #expect(throws: DecodingFailure.self) { try Message.decode(Frame(type: 0x24, payload: [])) }
    #expect(throws: DecodingFailure.self) { try Message.decode(Frame(type: 0x7F, payload: [])) }
    #expect(try Message.decode(Frame(type: 0x80, payload: [1])) == nil)
    #expect(try Message.decode(Frame(type: 0xFF, payload: [])) == nil)
  }

  @Test("Text from the other side cannot control a terminal")
  func printableText() {
    #expect("a\u{1B}[2Jb\u{202E}c\nd".printable == "a[2Jbcd")
    #expect("größer 船".printable == "größer 船")
  }
}

@Suite("Large messages") struct LargeMessageTests {
  @Test(
    "are the same bytes in pieces, and decode to what was encoded, whatever precedes the encrypted part",
    arguments: [0, 1, 63, 64, 65, Frame.pieceBytes - 1, Frame.pieceBytes, 200_000], [UInt64(0), 300, 1 << 32])
  func pieces(count: Int, offset: UInt64) throws {
    let sealed = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
    let messages: [Message] = [
      .batch(index: UInt32(truncatingIfNeeded: offset), encrypted: sealed),
      .blobRange(
        BlobRange(hash: Samples.hash, offset: offset, isLast: count.isMultiple(of: 2), encrypted: sealed)),
    ]
    for message in messages {
      #expect(Array(message.pieces.joined()) == message.frame.bytes)
      #expect(message.pieces.count == (count >= Frame.pieceBytes ? 2 : 1))
      #expect(try Message.decode(message.frame) == message)
    }
  }
}

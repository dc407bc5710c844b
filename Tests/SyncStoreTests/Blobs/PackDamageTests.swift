import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// One flipped bit in any file of the blob tier. Every object is served, or reported as damaged; none is
/// lost, and no removed one returns.
///
/// `DAMAGE_ALL=1` (`make damage`) tries every bit of every used byte; otherwise a part.
@Suite("Any file of a small blob tier")
struct PackDamageTests {
  /// How the tier was closed, and who reads it.
  struct Way: CustomTestStringConvertible {
    var closed = false
    /// The machine's boot: 0 never matches.
    var boot: UInt64 = 0
    var readOnly = false
    var testDescription: String { "closed: \(closed), boot: \(boot), read-only: \(readOnly)" }
  }

  static let ways = [Way(closed: true), Way(), Way(boot: 7), Way(closed: true, readOnly: true)]

  /// A tier with a closed pack, an active one, and an object in a file.
  struct Sample {
    let test: BlobsUnderTest
    let storage: SimulatedStorage
    let way: Way
    private(set) var objects: [(reference: BlobReference, bytes: [UInt8])] = []
    let removed: BlobReference
    let files: [String: [UInt8]]

    init(_ way: Way) throws {
      self.way = way
      test = try BlobsUnderTest(.simulated)
      storage = try #require(test.base.storage as? SimulatedStorage)
      let filed = try Self.open(test, way, packing: .none)
      let inFile = pattern(150, seed: 9)
      objects.append((try filed.put(bytes: inFile, durable: true), inFile))
      filed.close()
      let blobs = try Self.open(test, way)
      for (number, count) in [200, 500, 64, 300].enumerated() {
        let bytes = pattern(count, seed: UInt64(number))
        objects.append((try blobs.put(bytes: bytes, durable: true), bytes))
        if number == 1 { try blobs.packs.retireWriter() }
      }
      removed = try blobs.put(bytes: pattern(100, seed: 8), durable: true)
      #expect(try blobs.remove(removed.hash))
      try blobs.sync()
      if way.closed { blobs.close() }
      storage.killProcesses()
      files = try storage.files(below: test.directory).filter { !$0.key.contains("catalogue") }
      #expect(try test.packs().count == 2)
    }

    static func open(
      _ test: BlobsUnderTest, _ way: Way, packing: PackSettings = .small, readOnly: Bool = false
    ) throws -> BlobStore {
      try BlobStore.open(
        directory: test.directory, storage: test.base.storage, access: readOnly ? .readOnly : .shared,
        packing: packing,
        environment: BlobEnvironment(boot: way.boot, now: { 1_700_000_000_000 }, randomWord: { 77 }))
    }

    /// Used bytes of the files, and those next to them.
    var places: [(path: String, offset: Int)] {
      files.sorted { $0.key < $1.key }.flatMap { path, bytes in
        bytes.indices.filter { offset in
          bytes[max(0, offset - 8)..<min(offset + 8, bytes.count)].contains { $0 != 0 }
        }.map { (path, $0) }
      }
    }

    /// Whether the byte belongs to the content of an object.
    func isContent(_ path: String, _ offset: Int) -> Bool {
      path.contains("/objects/") || offset >= PackLayout.tableBytes(for: 64 << 10)
    }

    func isEntry(_ path: String, _ offset: Int) -> Bool {
      path.contains("/packs/") && offset >= PackLayout.headerBytes && !isContent(path, offset)
    }

    /// Flips a bit, checks, and restores all files.
    func look(_ path: String, _ offset: Int, bit: Int) throws {
      let place = "\(path), byte \(offset), bit \(bit)"
      try storage.flipBit(of: path, at: offset, bit: bit)
      let blobs = try Self.open(test, way, readOnly: way.readOnly)
      var damaged = 0
      for (reference, bytes) in objects {
        do throws(StoreError) {
          let isRight = try blobs.read(reference) == bytes
          #expect(isRight, "\(place): wrong content")
        } catch {
          damaged += 1
          // A read-only opening cannot repair a table, and finds no object through it: `verify` reports that.
          let isMissed = way.readOnly && isEntry(path, offset) && error.code == .blobUnavailable
          #expect(isMissed || isContent(path, offset) && error.code == .damaged, "\(place): \(error)")
          if isMissed { #expect(try !blobs.verify().isEmpty, "\(place): nothing is reported") }
        }
      }
      #expect(damaged <= 1, "\(place)")
      #expect(try !blobs.has(removed.hash), "\(place): what was removed is back")
      if !way.readOnly {
        for (reference, bytes) in objects {
          #expect(try blobs.put(bytes: bytes, durable: true) == reference)
          #expect(try blobs.read(reference) == bytes, "\(place): put again")
        }
        // A possible loss is reported once.
        _ = try blobs.verify()
        let again = try blobs.verify()
        #expect(again.isEmpty, "\(place): \(again)")
        blobs.close()
      }
      storage.killProcesses()
      for path in try storage.files(below: test.directory).keys where files[path] == nil {
        _ = try storage.remove(path)
      }
      try storage.restore(files)
    }
  }

  @Test("loses no object and revives none, whichever bit is flipped (F37, F42)", arguments: ways)
  func everyBit(_ way: Way) throws {
    let sample = try Sample(way)
    var count = 0
    for (path, offset) in sample.places {
      for bit in 0..<8 {
        count += 1
        guard EveryFileDamageTests.all || count.isMultiple(of: 61) else { continue }
        try sample.look(path, offset, bit: bit)
      }
    }
    #expect(count > 10_000)
  }

  @Test("loses no object by a flipped bit in the words that mark it as live", arguments: ways)
  func everyMark(_ way: Way) throws {
    let sample = try Sample(way)
    let words = (4096..<(4096 + 4 * 64)).filter { $0 % 64 / 8 == 6 } + Array(1024..<1056)
    var count = 0
    for path in sample.files.keys.sorted() where path.contains("/packs/") {
      for offset in words {
        for bit in 0..<8 {
          count += 1
          guard EveryFileDamageTests.all || count.isMultiple(of: 5) else { continue }
          try sample.look(path, offset, bit: bit)
        }
      }
    }
  }

  @Test(
    "A damaged header copy is reported by a read-only process, and rewritten by a writer",
    arguments: [0, 1])
  func header(copy: Int) throws {
    let sample = try Sample(Way(closed: true))
    let path = try #require(sample.files.keys.filter { $0.contains("/packs/") }.min())
    try sample.storage.flipBit(of: path, at: PackLayout.headerCopies[copy] + 17, bit: 3)
    let reader = try Sample.open(sample.test, sample.way, readOnly: true)
    let problems = try reader.verify()
    #expect(problems.count == 1 && problems[0].problem.contains("no peer is needed"), "\(problems)")
    let blobs = try Sample.open(sample.test, sample.way)
    #expect(try blobs.verify().isEmpty)
    #expect(
      try sample.storage.contents(of: path, limit: 1 << 20)?.prefix(4096).elementsEqual(
        sample.files[path]?.prefix(4096) ?? []) == true)
  }

  // MARK: Words

  @Test("No flipped bit and no single byte turns a dead word into a live one, nor the other way round")
  func words() {
    var random = SplitMix64(seed: 4)
    for round in 0..<200 {
      let stamp = UInt64.random(in: 0...PackLayout.greatestStamp, using: &random)
      let word = PackWord(stamp: stamp, round.isMultiple(of: 2) ? .live : .removed, isGuarded: true)
      #expect(word.stamp == stamp && word.isLive == round.isMultiple(of: 2) && !word.hasFlippedBits)
      for byte in 0..<8 {
        for mask in UInt64(1)...255 {
          let changed = PackWord(bits: word.bits ^ mask << UInt64(8 * byte), isGuarded: true)
          #expect(changed.isLive == word.isLive)
        }
      }
    }
  }

  @Test("Words match the golden vectors")
  func vectors() throws {
    struct Vectors: Decodable {
      struct Word: Decodable {
        var milliseconds: UInt64
        var counter: UInt64
        var live: Bool
        var word: String
        var version_1: String
      }
      struct Marks: Decodable {
        var word: String
        var live: Bool
        var in_doubt: Bool
      }
      var words: [Word]
      var marks: [Marks]
    }
    let vectors = try Checkout.vector("pack-words.json", as: Vectors.self)
    func bits(_ hex: String) throws -> UInt64 {
      try #require(Hex.bytes(of: hex)).reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    for vector in vectors.words {
      let stamp = vector.milliseconds << 16 | vector.counter
      for (isGuarded, hex) in [(true, vector.word), (false, vector.version_1)] {
        let word = PackWord(stamp: stamp, vector.live ? .live : .removed, isGuarded: isGuarded)
        #expect(try word.bits == bits(hex))
        #expect(word.isLive == vector.live && word.stamp == stamp && word.milliseconds == vector.milliseconds)
      }
    }
    for vector in vectors.marks {
      let word = PackWord(bits: try bits(vector.word), isGuarded: true)
      #expect(word.isLive == vector.live && word.hasFlippedBits == vector.in_doubt)
    }
    #expect(vectors.words.count == 12 && vectors.marks.count == 8)
  }

  @Test("A pack of version 1 is read, appended to and removed from")
  func versionOne() throws {
    let test = try BlobsUnderTest(.simulated)
    try test.open(packing: .small).close()
    let bytes = pattern(300)
    let header = PackHeader(number: 7, size: 64 << 10, salt: 5, version: 1)
    let file = try test.base.storage.open(test.directory + "/" + Pack.name(7), .create)
    try file.allocate(to: header.size)
    for offset in PackLayout.headerCopies { try file.write(header.encoded, at: offset) }
    let name = BlobHash(sha256: SHA256.hash(bytes))
    try file.write(bytes, at: header.tableBytes)
    let pack = try Pack(header, name: Pack.name(7), file: file, isWritable: true)
    pack.publish(
      PackEntry(
        name: name, offset: header.tableBytes, size: 300, isEncrypted: false,
        checksum: XXH3.hash64(bytes, seed: 0)),
      stamp: 4 << 16)
    #expect(pack.word(0).bits == 4 << 17 | 1)
    var blobs = try test.open(packing: .small)
    #expect(try blobs.read(BlobReference(hash: name, size: 300)) == bytes)
    let second = try blobs.put(bytes: pattern(400, seed: 2), durable: true)
    #expect(try test.packs() == [Pack.name(7)] && pack.count == 2)
    #expect(try blobs.remove(name))
    blobs.close()
    blobs = try test.open(packing: .small)
    #expect(try !blobs.has(name) && blobs.read(second) == pattern(400, seed: 2))
    #expect(pack.word(0).bits & 1 == 0)
  }
}

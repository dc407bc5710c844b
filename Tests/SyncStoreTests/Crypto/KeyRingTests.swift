import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite struct ScryptTests {
  @Test(
    "The examples of RFC 7914 give their keys",
    arguments: [
      (
        "password", "NaCl", Scrypt.Parameters(logN: 10, r: 8, p: 16),
        "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
          + "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
      ),
      (
        "pleaseletmein", "SodiumChloride", Scrypt.Parameters(logN: 14, r: 8, p: 1),
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
          + "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
      ),
    ])
  func examples(passphrase: String, salt: String, parameters: Scrypt.Parameters, key: String) throws {
    let derived = try #require(
      Scrypt.derive(64, from: Passphrase(passphrase).secret, salt: Array(salt.utf8), parameters))
    #expect(Hex.string(of: derived.copy()) == key)
  }

  @Test(
    "Parameters that need excessive memory or time are not run (F86)",
    arguments: [
      Scrypt.Parameters(logN: 62, r: 8, p: 1), Scrypt.Parameters(logN: 0, r: 8, p: 1),
      Scrypt.Parameters(logN: -1, r: 8, p: 1), Scrypt.Parameters(logN: 20, r: 8, p: 1),
      Scrypt.Parameters(logN: 14, r: 1 << 40, p: 1), Scrypt.Parameters(logN: 14, r: 8, p: 1 << 20),
      Scrypt.Parameters(logN: 18, r: 8, p: 16), Scrypt.Parameters(logN: 14, r: 0, p: 0),
    ])
  func bounds(parameters: Scrypt.Parameters) {
    #expect(!parameters.areBounded)
    #expect(Scrypt.derive(32, from: Passphrase("x").secret, salt: [], parameters) == nil)
    #expect(Scrypt.Parameters.standard.areBounded)
  }
}

@Suite("The key file")
struct KeyRingTests {
  static let cheap = Scrypt.Parameters(logN: 1, r: 1, p: 1)
  static let passphrase = Passphrase("a person's").secret

  /// Deterministic randomness.
  static func random(_ seed: UInt64 = 7) -> (Int) -> [UInt8] {
    let generator = Locked(SplitMix64(seed: seed))
    return { count in generator.withLock { $0.bytes(count) } }
  }

  static func ring(_ random: @escaping (Int) -> [UInt8]) throws -> KeyRing {
    let store = try #require(StoreID("000102030405060708090a0b0c0d0e0f"))
    return try #require(
      KeyRing(
        store: store, passphrase: passphrase, cost: cheap, generation: 1, acceptsPlain: false,
        random: random))
  }

  static func unlock(_ bytes: [UInt8], _ passphrase: Secret = passphrase) throws -> KeyRing {
    try KeyRingFile.unlock(bytes, passphrase: passphrase, path: "ring")
  }

  static func expectSame(_ left: KeyRing, _ right: KeyRing) throws {
    #expect(left.masters.keys.sorted() == right.masters.keys.sorted())
    for (generation, master) in left.masters {
      #expect(try #require(right.masters[generation]).equals(master))
    }
    #expect(left.secret.equals(right.secret))
    #expect(left.current == right.current)
    #expect(left.acceptsPlain == right.acceptsPlain)
  }

  @Test("returns what was put into it, and nothing under another passphrase")
  func roundTrip() throws {
    let random = Self.random()
    var ring = try Self.ring(random)
    ring.rotate(least: 9, random: random)
    let bytes = ring.encoded(random: random)
    try Self.expectSame(try Self.unlock(bytes), ring)
    #expect(ring.current == 9)
    for wrong in ["", "a person", "a person's ", "A person's"] {
      let error = #expect(throws: StoreError.self) {
        try Self.unlock(bytes, Passphrase(wrong.isEmpty ? "\0" : wrong).secret)
      }
      #expect(error?.code == .wrongKey)
    }
  }

  @Test("has no key in plaintext, and shows none in a description")
  func clear() throws {
    let random = Self.random()
    let ring = try Self.ring(random)
    let text = String(decoding: ring.encoded(random: random), as: UTF8.self)
    var shown = ""
    dump(ring, to: &shown)
    dump(Configuration(passphrase: Passphrase("a person's")), to: &shown)
    shown +=
      "\(ring) \(ring.secret) \(Passphrase("a person's")) \(Configuration(passphrase: Passphrase("a person's")))"
    for secret in Array(ring.masters.values) + [ring.secret] {
      #expect(!text.contains(Hex.string(of: secret.copy())))
      #expect(!shown.contains("\(secret.copy()[0]), \(secret.copy()[1])"))
    }
    #expect(!shown.contains("a person"))
  }

  @Test("is refused, and never misread, whichever bit is flipped (F37)")
  func everyBit() throws {
    let random = Self.random()
    var ring = try Self.ring(random)
    ring.rotate(least: 2, random: random)
    let bytes = ring.encoded(random: random)
    for index in bytes.indices {
      for bit in 0..<8 {
        var changed = bytes
        changed[index] ^= 1 << UInt8(bit)
        #expect(throws: StoreError.self, "byte \(index), bit \(bit)") { try Self.unlock(changed) }
      }
    }
  }

  /// The file with one line changed, and a matching checksum.
  static func forged(_ bytes: [UInt8], _ change: (inout [String]) -> Void) -> [UInt8] {
    var lines =
      String(decoding: bytes, as: UTF8.self).split(
        separator: "\n", omittingEmptySubsequences: false
      ).map(String.init).dropLast(2) as [String]
    change(&lines)
    let sum = XXH3.hash64(Array(lines.joined(separator: "\n").utf8), seed: 0)
    return Array((lines.joined(separator: "\n") + "\nchecksum \(String(sum, radix: 16))\n").utf8)
  }

  @Test("is refused if it was changed by someone who can compute the checksum, but has no key")
  func forgery() throws {
    let random = Self.random()
    var ring = try Self.ring(random)
    ring.rotate(least: 2, random: random)
    let bytes = ring.encoded(random: random)
    try Self.expectSame(try Self.unlock(Self.forged(bytes) { _ in }), ring)
    let changes: [(Int, String)] = [
      (1, "store ffffffffffffffffffffffffffffffff"), (3, "seals 1"), (4, "plain 1"), (5, "generations 1 3"),
    ]
    for (line, text) in changes {
      let changed = Self.forged(bytes) { $0[line] = text }
      #expect(throws: StoreError.self, "\(text)") { try Self.unlock(changed) }
      let updated = try? ring.updated(from: changed, path: "ring")
      #expect(updated == nil, "\(text)")
    }
    let swapped = Self.forged(bytes) { lines in
      let (first, second) = (lines[7].split(separator: " "), lines[8].split(separator: " "))
      lines[7] = (first[..<2] + second[2...]).joined(separator: " ")
      lines[8] = (second[..<2] + first[2...]).joined(separator: " ")
    }
    #expect(#expect(throws: StoreError.self) { try Self.unlock(swapped) }?.code == .wrongKey)
  }

  @Test("with excessive derivation parameters is refused before the derivation (F86)")
  func bounds() throws {
    let bytes = try Self.ring(Self.random()).encoded(random: Self.random())
    for scrypt in ["20 8 1", "62 8 1", "14 1000000 1", "15 8 1000000", "9999999999999999999 8 1"] {
      let foreign = Self.forged(bytes) { lines in
        lines[2] = "scrypt \(scrypt) " + (lines[2].split(separator: " ").last ?? "")
      }
      let error = #expect(throws: StoreError.self) { try Self.unlock(foreign) }
      #expect([.outOfBounds, .damaged].contains(error?.code), "\(scrypt)")
    }
  }

  @Test("that is longer, shorter or something else is refused (F45, F46)")
  func foreign() throws {
    let bytes = try Self.ring(Self.random()).encoded(random: Self.random())
    #expect(throws: StoreError.self) { try Self.unlock([]) }
    #expect(throws: StoreError.self) { try Self.unlock(Array(repeating: 0x20, count: 1 << 20)) }
    for count in 0..<bytes.count {
      #expect(throws: StoreError.self) { try Self.unlock(Array(bytes[..<count])) }
    }
    let newer = Self.forged(bytes) { $0[0] = "syncstore-keys 2" }
    #expect(#expect(throws: StoreError.self) { try Self.unlock(newer) }?.code == .newerFormat)
  }

  @Test("informs processes with the store open of new keys, also after the passphrase was changed (F12)")
  func update() throws {
    let random = Self.random()
    let inside = try Self.ring(random)
    var ring = inside
    let changed = ring.change(passphrase: Passphrase("another").secret, cost: Self.cheap, random: random)
    #expect(changed)
    ring.rotate(least: 5, random: random)
    let bytes = ring.encoded(random: random)
    #expect(throws: StoreError.self) { try Self.unlock(bytes) }
    try Self.expectSame(try Self.unlock(bytes, Passphrase("another").secret), ring)
    let updated = try #require(try inside.updated(from: bytes, path: "ring"))
    try Self.expectSame(updated, ring)
    #expect(updated.isStale)
    #expect(try #require(try updated.updated(from: bytes, path: "ring")).isStale)
    ring.dropOldGenerations()
    // The chain ends with its starting key: a process that missed all changes must reopen the store.
    #expect(try inside.updated(from: ring.encoded(random: random), path: "ring") == nil)
    try Self.expectSame(
      try #require(try updated.updated(from: ring.encoded(random: random), path: "ring")), ring)
  }

  @Test("is the golden file, byte for byte, and the golden file is read")
  func golden() throws {
    struct Vector: Codable {
      var passphrase: String
      var file: String
      var secret: String
      var masters: [String: String]
    }
    let path = GoldenSegmentTests.path.deletingLastPathComponent().appending(path: "keys.json")
    let vector = try JSONDecoder().decode(Vector.self, from: Data(contentsOf: path))
    let random = Self.random()
    var ring = try Self.ring(random)
    ring.rotate(least: 3, random: random)
    #expect(String(decoding: ring.encoded(random: random), as: UTF8.self) == vector.file)
    let read = try Self.unlock(Array(vector.file.utf8), Passphrase(vector.passphrase).secret)
    #expect(Hex.string(of: read.secret.copy()) == vector.secret)
    for (generation, master) in vector.masters {
      let found = try #require(UInt32(generation).flatMap { read.masters[$0] })
      #expect(Hex.string(of: found.copy()) == master)
    }
    #expect(read.masters.count == vector.masters.count)
  }
}

extension KeyRingTests {
  @Test("A passphrase keeps the last key derived from it")
  func derivedOnce() throws {
    let passphrase = Passphrase("a person's")
    let lock = KeyRingFile.PassphraseKDF(parameters: Self.cheap, salt: [1])
    func derive(_ lock: KeyRingFile.PassphraseKDF) throws -> Secret {
      try #require(
        try passphrase.tryingBothForms { secret, derive throws(StoreError) in derive(lock, secret) })
    }
    let first = try derive(lock)
    #expect(try derive(lock) === first)
    // A new salt, as after a change of the passphrase, needs another key.
    let other = try derive(.init(parameters: Self.cheap, salt: [2]))
    #expect(other !== first && !other.equals(first))
    #expect(try derive(lock).equals(first))
    #expect(
      KeyRingFile.PassphraseKDF(parameters: Self.cheap, salt: [2]).key(passphrase.secret)?.equals(other)
        == true)
  }
}

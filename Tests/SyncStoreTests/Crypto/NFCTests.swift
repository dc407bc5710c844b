import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// The bytes of a passphrase (`schemas/keys.md`).
@Suite("The bytes of a passphrase", .timeLimit(.minutes(Patience.minutes(2))))
struct NFCTests {
  private static func normalized(_ scalars: some Sequence<UInt32>) -> [UInt8]? {
    var text = String.UnicodeScalarView()
    text.append(contentsOf: scalars.compactMap(Unicode.Scalar.init))
    return NFC.normalized(Array(String(text).utf8))
  }

  private static func reference(_ scalars: some Sequence<UInt32>) -> [UInt8] {
    var text = String.UnicodeScalarView()
    text.append(contentsOf: scalars.compactMap(Unicode.Scalar.init))
    return Array(String(text).precomposedStringWithCanonicalMapping.utf8)
  }

  /// Scalars assigned by Unicode 13: every library knows those.
  private static let known: [UInt32] = (UInt32(0)..<0x110000).filter {
    guard $0 < 0xF0000, let age = Unicode.Scalar($0)?.properties.age else { return false }
    return age.major <= 13
  }

  /// Outside the BMP Foundation composes a mark with the scalar of the same lower 16 bits: there, each is
  /// tested alone.
  @Test("are in the form that Foundation gives, for each scalar, alone and before a combining mark")
  func everyScalar() {
    #expect(Self.known.count > 140_000)
    for scalar in Self.known {
      // Most of the rest are ideographs without any mapping.
      guard scalar < 0x3400 || scalar >= 0xA000 || scalar.isMultiple(of: 16) else { continue }
      let row = scalar < 0x10000 ? [scalar, 0x301] : [scalar]
      let isSame = Self.normalized(row) == Self.reference(row)
      if !isSame { Issue.record("U+\(String(scalar, radix: 16))") }
    }
  }

  @Test("are in that form for random rows of letters, marks and syllables", arguments: 0..<4 as Range<UInt64>)
  func rows(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let marks = Self.known.filter {
      (0x300..<0x370).contains($0) || (0x5B0..<0x5C8).contains($0) || $0 == 0x9BC || $0 == 0x1161

    }
    let letters: [UInt32] = [
      0x41, 0x65, 0x6F, 0x1EA5, 0xE9, 0x212B, 0x1100, 0x9C7, 0x9BE, 0x3A9, 0x1F80, 0x0F71, 0x0F72,
    ]
    for _ in 0..<2000 {
      let row = (0..<Int(random.next() % 8 + 1)).map { _ in
        random.next() % 3 == 0
          ? letters[Int(random.next() % UInt64(letters.count))]
          : marks[Int(random.next() % UInt64(marks.count))]
      }
      #expect(Self.normalized(row) == Self.reference(row), "\(row.map { String($0, radix: 16) })")
    }
  }

  @Test(
    "are those of the page that documents them",
    arguments: [
      ("636166c3a9", "636166c3a9"), ("63616665cc81", "636166c3a9"), ("efbbbf61620d0a", "6162"),
      ("e18492e185a1e186ab", "ed959c"), ("e284ab", "c385"), ("206120", "206120"), ("0d0a", "0d0a"),
      ("ff65cc810a", "ff65cc81"),
    ])
  func page(given: String, counting: String) throws {
    let bytes = try #require(Hex.bytes(of: given))
    let passphrase = Passphrase(bytes)
    #expect(Hex.string(of: passphrase.secret.copy()) == counting)
    #expect((passphrase.unnormalized == nil) == (given == counting))
    #expect(passphrase.unnormalized.map { $0.copy() == bytes } ?? true)
  }

  /// Foundation leaves this pair unchanged; UAX #15 does not.
  @Test("compose a Hangul syllable with the following consonant")
  func hangul() {
    #expect(Self.normalized([0xAC00, 0x11A8]) == Array("\u{AC01}".utf8))
    #expect(Self.normalized([0xAC01, 0x11A8]) == Array("\u{AC01}\u{11A8}".utf8))
  }

  private static let cost = Scrypt.Parameters(logN: 4, r: 1, p: 1)

  private static func configuration(_ passphrase: Passphrase) -> Configuration {
    var configuration = Configuration(passphrase: passphrase)
    configuration.passphraseCost = cost
    return configuration
  }

  @Test("are the same for every form of a text: a store opens with each")
  func forms() throws {
    let host = SimulatedHost(encrypted: false)
    let texts = ["caf\u{E9}", "cafe\u{301}", "\u{FEFF}cafe\u{301}\r\n", "caf\u{E9}\n"]
    for (number, first) in texts.enumerated() {
      let path = "/store\(number)"
      try Store.create(path, on: host, configuration: Self.configuration(Passphrase(first))).close()
      for text in texts {
        try Store.open(path, on: host, configuration: Self.configuration(Passphrase(Array(text.utf8))))
          .close()
      }
      for other in ["cafe", "CAF\u{E9}", " caf\u{E9}", "caf\u{E9} "] {
        #expect(
          #expect(throws: StoreError.self) {
            try Store.open(path, on: host, configuration: Self.configuration(Passphrase(other)))
          }?.code == .wrongKey)
      }
    }
  }

  @Test(
    "of a store encrypted by an earlier version are the earlier ones until the passphrase is set again"
  )
  func earlier() throws {
    let host = SimulatedHost(encrypted: false)
    let given = Array("cafe\u{301}\r".utf8)
    let store = try Store.create(on: host, configuration: Self.configuration(Passphrase("x")))
    try store.put("k", "v")
    // As written by an earlier version: keys derived from the unnormalised bytes.
    var ring = try #require(store.journalKeys.ring)
    let isChanged = ring.change(
      passphrase: Secret(copying: given.span), cost: Self.cost, random: host.environment.random)
    #expect(isChanged)
    try store.close()
    try host.storage.replace("/store/keys/ring", with: ring.encoded(random: host.environment.random))
    let again = try Store.open(on: host, configuration: Self.configuration(Passphrase(given)))
    #expect(try again.text("k") == "v")
    #expect(
      #expect(throws: StoreError.self) {
        try KeyRingFile.unlock(
          try #require(try host.storage.contents(of: "/store/keys/ring", limit: 1 << 20)),
          passphrase: Passphrase("caf\u{E9}").secret, path: "/store/keys/ring")
      }?.code == .wrongKey)
    try again.changePassphrase(to: Passphrase(given))
    try again.close()
    try Store.open(on: host, configuration: Self.configuration(Passphrase("caf\u{E9}"))).close()
  }
}

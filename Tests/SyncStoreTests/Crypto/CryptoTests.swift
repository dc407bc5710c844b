import SyncStore
import Testing

@Suite struct SHA256Tests {
  @Test(
    "The examples of FIPS 180-4 give their hashes",
    arguments: [
      ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
      ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
      (
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
      ),
    ])
  func examples(text: String, hash: String) {
    #expect(Hex.string(of: SHA256.hash(Array(text.utf8))) == hash)
  }

  @Test("Bytes in pieces of any size have the same hash as in one piece")
  func pieces() {
    let million = [UInt8](repeating: UInt8(ascii: "a"), count: 1_000_000)
    let expected = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
    #expect(Hex.string(of: SHA256.hash(million)) == expected)
    for piece in [1, 63, 64, 65, 4096, 999_999] {
      let hasher = SHA256Hasher()
      for start in stride(from: 0, to: million.count, by: piece) {
        hasher.update(Array(million[start..<min(start + piece, million.count)]))
      }
      #expect(Hex.string(of: hasher.finish()) == expected, "pieces of \(piece)")
    }
  }

  @Test("A hasher without input gives the hash of no bytes")
  func nothing() {
    #expect(SHA256Hasher().finish() == SHA256.hash([]))
  }
}

@Suite struct KeyDerivationTests {
  @Test(
    "The examples of RFC 4231 give their codes",
    arguments: [
      (
        [UInt8](repeating: 0x0B, count: 20), "Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
      ),
      (
        Array("Jefe".utf8), "what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
      ),
      (
        [UInt8](repeating: 0xAA, count: 131), "Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
      ),
      ([], "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
    ])
  func hmac(key: [UInt8], message: String, code: String) {
    let message = Array(message.utf8)
    #expect(Hex.string(of: HMACSHA256.code(for: message, key: key)) == code)
    #expect(HMACSHA256.isValid(Hex.bytes(of: code) ?? [], for: message, key: key))
    #expect(!HMACSHA256.isValid([UInt8](repeating: 0, count: 32), for: message, key: key))
  }

  @Test(
    "The examples of RFC 5869 give their keys",
    arguments: [
      (
        [UInt8](repeating: 0x0B, count: 22), Array(0x00...0x0C), Array(0xF0...0xF9), 42,
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
      ),
      (
        Array(0x00...0x4F), Array(0x60...0xAF), Array(0xB0...0xFF), 82,
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
          + "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
      ),
      (
        [UInt8](repeating: 0x0B, count: 22), [], [], 42,
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
      ),
    ] as [([UInt8], [UInt8], [UInt8], Int, String)])
  func hkdf(secret: [UInt8], salt: [UInt8], info: [UInt8], count: Int, key: String) {
    #expect(Hex.string(of: HKDFSHA256.derive(count, secret: secret, salt: salt, info: info)) == key)
  }

  @Test("Bytes are equal only if all of them are")
  func equality() {
    #expect(constantTimeEquals([], []))
    #expect(constantTimeEquals([1, 2, 3], [1, 2, 3]))
    #expect(!constantTimeEquals([1, 2, 3], [1, 2, 4]))
    #expect(!constantTimeEquals([1, 2, 3], [1, 2]))
  }
}

@Suite struct AES256GCMTests {
  /// Test cases 13 to 16 of McGrew and Viega, "The Galois/Counter Mode of Operation".
  struct Example: Sendable {
    let key, nonce, header, plaintext, sealed: String
  }

  static let key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
  static let plaintext =
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
    + "b16aedf5aa0de657ba637b391aafd255"
  static let ciphertext =
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
    + "c5f61e6393ba7a0abcc9f662898015ad"
  static let examples = [
    Example(
      key: String(repeating: "00", count: 32), nonce: String(repeating: "00", count: 12), header: "",
      plaintext: "", sealed: "530f8afbc74536b9a963b4f1c4cb738b"),
    Example(
      key: String(repeating: "00", count: 32), nonce: String(repeating: "00", count: 12), header: "",
      plaintext: String(repeating: "00", count: 16),
      sealed: "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
    Example(
      key: key, nonce: "cafebabefacedbaddecaf888", header: "", plaintext: plaintext,
      sealed: ciphertext + "b094dac5d93471bdec1a502270e3cc6c"),
    Example(
      key: key, nonce: "cafebabefacedbaddecaf888", header: "feedfacedeadbeeffeedfacedeadbeefabaddad2",
      plaintext: String(plaintext.prefix(120)),
      sealed: String(ciphertext.prefix(120)) + "76fc6ece0f4e1768cddf8853bb2d551b"),
  ]

  @Test("The published test cases are encrypted and decrypted", arguments: examples)
  func published(example: Example) throws {
    let key = try #require(Hex.bytes(of: example.key))
    let nonce = try #require(Hex.bytes(of: example.nonce))
    let header = try #require(Hex.bytes(of: example.header))
    let plaintext = try #require(Hex.bytes(of: example.plaintext))
    let sealed = AES256GCM.encrypt(plaintext, key: key, nonce: nonce, authenticating: header)
    #expect(Hex.string(of: sealed) == example.sealed)
    #expect(try AES256GCM.decrypt(sealed, key: key, nonce: nonce, authenticating: header) == plaintext)
  }

  @Test("F80 any changed bit, another key, nonce or header, or truncation is refused")
  func refusals() {
    let key = [UInt8](repeating: 7, count: 32)
    let nonce = [UInt8](repeating: 8, count: 12)
    let sealed = AES256GCM.encrypt(
      Array("twenty bytes of text".utf8), key: key, nonce: nonce, authenticating: [1])
    for index in sealed.indices {
      var changed = sealed
      changed[index] ^= 0x10
      #expect(throws: AuthenticationFailure()) {
        try AES256GCM.decrypt(changed, key: key, nonce: nonce, authenticating: [1])
      }
      #expect(throws: AuthenticationFailure()) {
        try AES256GCM.decrypt(Array(sealed.prefix(index)), key: key, nonce: nonce, authenticating: [1])
      }
    }
    var other = key
    other[31] ^= 1
    #expect(throws: AuthenticationFailure()) {
      try AES256GCM.decrypt(sealed, key: other, nonce: nonce, authenticating: [1])
    }
    #expect(throws: AuthenticationFailure()) {
      try AES256GCM.decrypt(sealed, key: key, nonce: [UInt8](repeating: 9, count: 12), authenticating: [1])
    }
    #expect(throws: AuthenticationFailure()) {
      try AES256GCM.decrypt(sealed, key: key, nonce: nonce, authenticating: [2])
    }
  }

  @Test("Encrypted bytes are appended to the buffer")
  func appending() {
    let key = [UInt8](repeating: 7, count: 32)
    let nonce = [UInt8](repeating: 8, count: 12)
    var output: [UInt8] = [1, 2, 3]
    AES256GCM.encrypt([UInt8](repeating: 5, count: 100_000), key: key, nonce: nonce, appendingTo: &output)
    #expect(output.count == 3 + 100_000 + 16)
    #expect(Array(output.prefix(3)) == [1, 2, 3])
    #expect(
      Array(output.dropFirst(3))
        == AES256GCM.encrypt([UInt8](repeating: 5, count: 100_000), key: key, nonce: nonce))
  }
}

@Suite struct SecureRandomTests {
  @Test("Random bytes come in the number asked for and do not repeat", arguments: [0, 1, 16, 256, 257, 1000])
  func counts(count: Int) {
    let first = SecureRandom.bytes(count)
    #expect(first.count == count)
    if count >= 16 { #expect(first != SecureRandom.bytes(count)) }
    // A piece that was forgotten would stay zero.
    if count >= 256 {
      #expect(first.suffix(128).contains { $0 != 0 } && first.prefix(128).contains { $0 != 0 })
    }
  }

  @Test("Random names differ")
  func names() {
    #expect(Set((0..<100).map { _ in ActorID.random() }).count == 100)
    #expect(StoreID.random() != StoreID.random())
    #expect(RoundMark.random() != RoundMark.random())
  }
}

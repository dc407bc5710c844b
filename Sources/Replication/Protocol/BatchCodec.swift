private import SyncStore

/// Encrypts and decrypts batches: payload → zlib → AES-256-GCM under a key derived for that one batch.
///
/// Pure: random bytes are passed in. The byte layout is in schemas/wire-batch.md.
///
/// Invariants:
/// - no two different messages are encrypted under one key, even if the random generator repeats itself: the
///   salt depends on everything that is encrypted and authenticated;
/// - nothing is read before the tag is verified, except the header fields, which are compared with the
///   expected ones;
/// - no more memory is allocated than the declared length, which is checked against its bound first (F79).
package enum BatchCodec {
  /// Bytes before the ciphertext.
  package static let headerBytes = 100
  /// Bytes that encryption adds at most.
  package static let overheadBytes = headerBytes + AES256GCM.tagBytes
  /// Random bytes that `encrypt` needs.
  package static let randomnessBytes = 32

  private static let version: UInt8 = 1
  private static let isCompressed: UInt8 = 1
  private static let saltOffset = 68
  private static let saltPurpose = Array("syncstore batch salt v2".utf8)
  private static let keyPurpose = Array("syncstore batch v1".utf8)
  // Each key encrypts one batch, so the nonce may be constant.
  private static let nonce = [UInt8](repeating: 0, count: AES256GCM.nonceBytes)

  /// Encrypts `payload` under the current epoch of `keys`.
  ///
  /// `payload` has at most `context.kind.maximumBytes`, otherwise `.protocolViolation`. `randomness` is 32
  /// unpredictable bytes. Without `deflating` the payload is encrypted uncompressed.
  package static func encrypt(
    _ payload: [UInt8], as context: BatchContext, keys: GroupKeyRing, randomness: [UInt8],
    deflating: Bool = true
  ) throws(ReplicationError) -> [UInt8] {
    precondition(randomness.count == randomnessBytes, "encryption takes 32 random bytes")
    guard payload.count <= context.kind.maximumBytes else {
      throw ReplicationError(
        .protocolViolation,
        "encrypting \(context): \(payload.count) bytes, above the limit of \(context.kind.maximumBytes): send less at once"
      )
    }
    guard let groupKey = keys.key(of: keys.current) else {
      throw ReplicationError(
        .cryptography, "encrypting \(context): the key ring is empty: join the store again")
    }
    let compressed = deflating ? Compression.deflate(payload) : nil
    let body = compressed ?? payload
    var output = ByteWriter(capacity: body.count + overheadBytes)
    write(context, epoch: keys.current, isCompressed: compressed != nil, count: payload.count, to: &output)
    // Keyed: otherwise an attacker who knows the random bytes could test guesses of the content against the
    // salt. GMAC of the body takes a fifth of SHA-256's time, and the digest is never sent (decision 39).
    let saltKeys = HKDFSHA256.derive(64, secret: groupKey, salt: [], info: saltPurpose)
    let digest = AES256GCM.encrypt([], key: Array(saltKeys[32...]), nonce: nonce, authenticating: body)
    let salt = HMACSHA256.code(for: randomness + output.bytes + digest, key: Array(saltKeys[..<32]))
    let key = HKDFSHA256.derive(
      AES256GCM.keyBytes, secret: groupKey, salt: salt, info: keyPurpose + output.bytes)
    output.write(raw: salt)
    var encrypted = output.bytes
    AES256GCM.encrypt(body, key: key, nonce: nonce, authenticating: encrypted, appendingTo: &encrypted)
    return encrypted
  }

  /// Decrypts `encrypted`, which must be the batch that `expected` describes.
  ///
  /// `.protocolViolation` if it is another batch (F80), was changed, was encrypted under an unknown epoch, or
  /// does not inflate to exactly its declared length (F79).
  package static func decrypt(
    _ encrypted: [UInt8], expecting expected: BatchContext, keys: GroupKeyRing
  ) throws(ReplicationError) -> [UInt8] {
    func refusal(_ why: String) -> ReplicationError {
      ReplicationError(.protocolViolation, "opening \(expected): \(why): the connection is closed")
    }
    guard encrypted.count >= overheadBytes,
      encrypted.count <= overheadBytes + expected.kind.maximumBytes
    else {
      throw refusal("\(CountText.of(encrypted.count, noun: "byte")): too few or too many")
    }
    let header = Array(encrypted[..<headerBytes])
    guard header[0] == version else { throw refusal("version \(header[0]) is unknown") }
    let isCompressed = header[2] == Self.isCompressed
    guard isCompressed || header[2] == 0, let epoch = epoch(of: encrypted) else {
      throw refusal("unknown flags")
    }
    let count = Int(UInt32(littleEndianBytes: header[64..<saltOffset]))
    var expectedHeader = ByteWriter(capacity: saltOffset)
    write(expected, epoch: epoch, isCompressed: isCompressed, count: count, to: &expectedHeader)
    guard header[..<saltOffset].elementsEqual(expectedHeader.bytes) else {
      throw refusal("the header is that of another batch")
    }
    guard let groupKey = keys.key(of: epoch) else { throw refusal("group key epoch \(epoch) is unknown") }
    let key = HKDFSHA256.derive(
      AES256GCM.keyBytes, secret: groupKey, salt: Array(header[saltOffset...]),
      info: keyPurpose + expectedHeader.bytes)
    let body: [UInt8]
    do {
      body = try AES256GCM.decrypt(encrypted[headerBytes...], key: key, nonce: nonce, authenticating: header)
    } catch {
      throw refusal("\(error)")
    }
    guard count <= expected.kind.maximumBytes else {
      throw refusal(
        "\(CountText.of(count, noun: "byte")) declared, above the limit of \(expected.kind.maximumBytes)")
    }
    guard isCompressed else {
      guard body.count == count else {
        throw refusal("\(CountText.of(body.count, noun: "byte")), \(count) declared")
      }
      return body
    }
    guard body.count < count, let payload = Compression.inflate(body, count: count) else {
      throw refusal("it does not inflate to the \(CountText.of(count, noun: "byte")) it declares")
    }
    return payload
  }

  /// The group key epoch in the header of `encrypted`, not yet authenticated; nil if `encrypted` is shorter.
  package static func epoch(of encrypted: [UInt8]) -> UInt32? {
    encrypted.count < headerBytes ? nil : UInt32(littleEndianBytes: encrypted[4..<8])
  }

  /// Whether the body of this encrypted batch is deflated.
  package static func isDeflated(_ encrypted: [UInt8]) -> Bool { encrypted[2] == isCompressed }

  private static func write(
    _ context: BatchContext, epoch: UInt32, isCompressed: Bool, count: Int, to output: inout ByteWriter
  ) {
    output.write(version)
    output.write(context.kind.rawValue)
    output.write(isCompressed ? Self.isCompressed : 0)
    output.write(UInt8(0))
    output.write(epoch)
    output.write(raw: context.store.bytes)
    output.write(raw: context.sender.bytes)
    output.write(raw: context.mark.bytes)
    output.write(context.index)
    output.write(UInt32(count))
  }
}

extension UInt32 {
  fileprivate init(littleEndianBytes bytes: ArraySlice<UInt8>) {
    self = bytes.reversed().reduce(0) { $0 << 8 | UInt32($1) }
  }
}

import SyncTestSupport
import Testing

@testable import SyncStore

/// Records are encrypted by one library, and everything else by another: both compute the same function.
@Suite("Per-thread ciphers")
struct ThreadCiphersTests {
  private static let nonce = ThreadCiphers.Nonce(place: 4096, tweak: 0x0123_4567_89AB_CDEF)
  /// Location, then tweak, both little-endian.
  private static let nonceBytes: [UInt8] = [0x00, 0x10, 0, 0, 0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01]
  private static let header = 44

  private let id = SegmentCipher.newName()
  private let material = [UInt8]((0..<256).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 11) })
  private var key: [UInt8] { Array(material.prefix(AES256GCM.keyBytes)) }

  private func message(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 73 &+ count) }
  }

  /// Header, ciphertext and tag.
  private func sealed(_ message: [UInt8]) -> [UInt8] {
    let plain = Mapping.heap(message.count)
    plain.store(message.span, at: 0)
    let target = Mapping.anonymous(message.count + AES256GCM.tagBytes)
    let header = Array(message[..<Self.header])
    target.store(header.span, at: 0)
    let tag = ThreadCiphers.current.encrypt(
      id, nonce: Self.nonce,
      ranges: ThreadCiphers.MessageRanges(header: 0..<Self.header, body: Self.header..<message.count),
      of: plain, into: target, at: Self.header, Secret(copying: material.span))
    #expect(tag.0 == target.load(message.count, as: UInt64.self))
    #expect(tag.1 == target.load(message.count + 8, as: UInt64.self))
    return target.bytes(0..<target.count)
  }

  /// The bytes after the header, decrypted; nil if authentication failed.
  private func opened(_ sealed: [UInt8]) -> [UInt8]? {
    let source = Mapping.heap(sealed.count)
    source.store(sealed.span, at: 0)
    let plain = Mapping.heap(sealed.count)
    let header = Array(sealed[..<Self.header])
    plain.store(header.span, at: 0)
    let isAuthentic = ThreadCiphers.current.decrypt(
      id, nonce: Self.nonce,
      ranges: ThreadCiphers.MessageRanges(header: 0..<Self.header, body: Self.header..<sealed.count),
      of: source, into: plain, at: Self.header
    ) { Secret(copying: material.span) }
    return isAuthentic ? plain.bytes(Self.header..<(sealed.count - AES256GCM.tagBytes)) : nil
  }

  @Test("encrypt what the other library decrypts, of any length")
  func encrypting() throws {
    for count in Array(0...130) + [1000, 4096, 70_001] {
      let message = message(Self.header + count)
      let sealed = sealed(message)
      let opened = try AES256GCM.decrypt(
        sealed[Self.header...], key: key, nonce: Self.nonceBytes,
        authenticating: Array(message[..<Self.header]))
      #expect(opened == Array(message[Self.header...]), "\(count) bytes")
    }
  }

  @Test("decrypt what the other library encrypted, of any length")
  func decrypting() {
    for count in Array(0...130) + [1000, 4096, 70_001] {
      let message = message(Self.header + count)
      let header = Array(message[..<Self.header])
      let sealed = AES256GCM.encrypt(
        Array(message[Self.header...]), key: key, nonce: Self.nonceBytes, authenticating: header)
      #expect(opened(header + sealed) == Array(message[Self.header...]), "\(count) bytes")
    }
  }

  @Test("decrypt nothing with a changed bit in the header, the text or the tag")
  func changes() {
    let whole = sealed(message(Self.header + 50))
    #expect(opened(whole) != nil)
    for index in whole.indices {
      var changed = whole
      changed[index] ^= 1 << UInt8(index % 8)
      #expect(opened(changed) == nil, "byte \(index)")
    }
  }
}

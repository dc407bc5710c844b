import COpenSSL
import SyncStore
import Testing

@testable import Replication

/// The state that a client keeps of a connection, for resumption.
@safe private final class SavedSession {
  let session: OpaquePointer

  /// Adopts the state it is given.
  init(_ session: OpaquePointer) { unsafe self.session = session }

  deinit { unsafe SSL_SESSION_free(session) }

  var isResumable: Bool { unsafe SSL_SESSION_is_resumable(session) == 1 }
  var earlyBytes: UInt32 { unsafe SSL_SESSION_get_max_early_data(session) }
}

/// One end of a TLS 1.3 connection of another program: OpenSSL with its own rules, over memory buffers. It
/// presents a device's key, and accepts any.
@safe private final class ForeignEnd {
  private let context: OpaquePointer
  private let connection: OpaquePointer
  private let (incoming, outgoing): (OpaquePointer?, OpaquePointer?)

  /// SSL_OP_NO_ANTI_REPLAY is a macro with an argument, which is not imported.
  private static let takesReplays: UInt64 = 1 << 24

  /// A client that has saved `session`; or a server that issues tickets, under the keys of `issuing`.
  init(_ identity: DeviceIdentity, resuming saved: SavedSession?) throws {
    unsafe context = try Self.context(TLS_client_method(), identity)
    unsafe connection = try #require(unsafe SSL_new(context))
    unsafe (incoming, outgoing) = unsafe (BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
    let name = [11] + Array("syncstore/1".utf8)
    try #require(unsafe SSL_set_alpn_protos(connection, name, UInt32(name.count)) == 0)
    if let saved { try #require(unsafe SSL_set_session(connection, saved.session) == 1) }
    unsafe SSL_set_connect_state(connection)
    unsafe SSL_set_bio(connection, incoming, outgoing)
  }

  init(_ identity: DeviceIdentity, underKeysOf issuing: TLSContext) throws {
    unsafe context = try Self.context(TLS_server_method(), identity)
    let other = try unsafe issuing.makeConnection()
    defer { unsafe SSL_free(other) }
    var keys = [UInt8](repeating: 0, count: 80)
    let count = keys.count
    try #require(
      unsafe SSL_CTX_ctrl(SSL_get_SSL_CTX(other), SSL_CTRL_GET_TLSEXT_TICKET_KEYS, count, &keys) == 1)
    try #require(unsafe SSL_CTX_ctrl(context, SSL_CTRL_SET_TLSEXT_TICKET_KEYS, count, &keys) == 1)
    unsafe SSL_CTX_set_max_early_data(context, 1 << 14)
    // With replay protection the content of a ticket stays on the server.
    unsafe SSL_CTX_set_options(context, Self.takesReplays)
    unsafe SSL_CTX_set_alpn_select_cb(
      context,
      { _, selected, count, offered, _, _ in
        unsafe selected?.pointee = offered.map { unsafe $0 + 1 }
        unsafe count?.pointee = offered.map { unsafe $0.pointee } ?? 0
        return SSL_TLSEXT_ERR_OK
      }, nil)
    unsafe connection = try #require(unsafe SSL_new(context))
    unsafe (incoming, outgoing) = unsafe (BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
    unsafe SSL_set_accept_state(connection)
    unsafe SSL_set_bio(connection, incoming, outgoing)
  }

  deinit {
    unsafe SSL_free(connection)
    unsafe SSL_CTX_free(context)
  }

  private static func context(_ method: OpaquePointer?, _ identity: DeviceIdentity) throws -> OpaquePointer {
    let context = try unsafe #require(unsafe SSL_CTX_new(method))
    let key = unsafe EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nil, identity.privateKey, identity.privateKey.count)
    defer { unsafe EVP_PKEY_free(key) }
    let certificate = identity.certificate
    try #require(
      unsafe SSL_CTX_use_certificate_ASN1(context, Int32(certificate.count), certificate) == 1
        && SSL_CTX_use_PrivateKey(context, key) == 1)
    return unsafe context
  }

  /// Feeds the bytes that the other end has sent, and returns the answer.
  func answer(_ bytes: [UInt8]) -> [UInt8] {
    if !bytes.isEmpty { unsafe BIO_write(incoming, bytes, Int32(bytes.count)) }
    if unsafe SSL_do_handshake(connection) == 1 {
      // Post-handshake messages, such as a ticket, are processed by a read.
      var byte: UInt8 = 0
      unsafe SSL_read(connection, &byte, 1)
    }
    return taken()
  }

  private func taken() -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    let count = unsafe BIO_read(outgoing, &bytes, Int32(bytes.count))
    return Array(bytes.prefix(max(0, Int(count))))
  }

  /// The hello, followed by unauthenticated bytes.
  func hello(early bytes: [UInt8]) throws -> [UInt8] {
    var written = 0
    try #require(unsafe SSL_write_early_data(connection, bytes, bytes.count, &written) == 1)
    return taken()
  }

  func sent(_ bytes: [UInt8]) throws -> [UInt8] {
    try #require(unsafe SSL_write(connection, bytes, Int32(bytes.count)) == Int32(bytes.count))
    return taken()
  }

  var isEstablished: Bool { unsafe SSL_is_init_finished(connection) == 1 }
  var isResumed: Bool { unsafe SSL_session_reused(connection) == 1 }
  var isEarlyDataRefused: Bool { unsafe SSL_get_early_data_status(connection) == SSL_EARLY_DATA_REJECTED }
  /// The state kept by a client.
  var saved: SavedSession? { unsafe SSL_get1_session(connection).map { unsafe SavedSession($0) } }
}

@Suite struct ResumptionTests {
  let alice: DeviceIdentity
  let bob: DeviceIdentity

  init() throws {
    alice = try DeviceIdentity(privateKey: [UInt8](repeating: 1, count: 32))
    bob = try DeviceIdentity(privateKey: [UInt8](repeating: 2, count: 32))
  }

  @Test(
    "F76 a client with a valid ticket must still prove its identity, and gets no early data"
  )
  func ticket() throws {
    let server = try TLSContext(role: .server, identity: bob)
    let issuer = try ForeignEnd(bob, underKeysOf: server)
    let first = try ForeignEnd(alice, resuming: nil)
    var bytes = first.answer([])
    while !bytes.isEmpty { bytes = first.answer(issuer.answer(bytes)) }
    let saved = try #require(first.saved)
    try #require(saved.isResumable && saved.earlyBytes > 0)

    // Such an end would accept it with early data: only the engine itself prevents that.
    let willing = try ForeignEnd(bob, underKeysOf: server)
    let known = try ForeignEnd(alice, resuming: saved)
    bytes = known.answer([])
    while !bytes.isEmpty { bytes = known.answer(willing.answer(bytes)) }
    #expect(known.isEstablished && known.isResumed)

    var asked = 0
    let engine = try TLSEngine(context: server, alpn: ["syncstore/1"]) { _, _ in
      asked += 1
      return true
    }
    let client = try ForeignEnd(alice, resuming: saved)
    try engine.receive(client.hello(early: Array("early".utf8)))
    #expect(engine.takePlaintext().isEmpty && !engine.isEstablished)
    try engine.receive(client.answer(engine.takeOutgoing()))
    #expect(engine.isEstablished && client.isEstablished)
    #expect(!client.isResumed && client.isEarlyDataRefused)
    #expect(asked == 1 && engine.peer == alice.id)
    #expect(engine.outgoingCount == 0 && engine.takePlaintext().isEmpty)
    try engine.receive(client.sent(Array("late".utf8)))
    #expect(engine.takePlaintext() == Array("late".utf8))
  }
}

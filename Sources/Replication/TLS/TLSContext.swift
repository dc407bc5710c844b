private import COpenSSL
package import SyncStore

/// Shared state of all connections of one device in one role: its key and the rules of the handshake.
///
/// Created once, so that a connection costs only its own buffers. Safe to share between threads.
///
/// The rules: TLS 1.3 only (F76); Ed25519 keys on both sides, accepted by pin and never by authority (F75);
/// an application protocol must be negotiated; no tickets, no resumption, no early data, no compression, no
/// renegotiation.
///
/// This is one of the few files that use `unsafe`: OpenSSL's objects and callbacks are pointers.
@safe package final class TLSContext: Sendable {
  /// The side of a connection.
  package enum Role: Sendable {
    /// The side that connects.
    case client
    /// The side that listens.
    case server
  }

  /// The side of the connections.
  package let role: Role
  /// The device whose key is presented.
  package let device: DeviceID
  private nonisolated(unsafe) let context: OpaquePointer

  /// Maximum bytes of certificates accepted from a peer. Ours have about 240.
  private static let certificateBytes = 4096

  /// Creates a context with the key of `identity`. `.cryptography` if OpenSSL does not support the rules.
  package init(role: Role, identity: DeviceIdentity) throws(ReplicationError) {
    self.role = role
    device = identity.id
    OpenSSLFailure.clear()
    let method = unsafe role == .client ? TLS_client_method() : TLS_server_method()
    guard let context = unsafe SSL_CTX_new(method) else { throw Self.failure() }
    // Owned from here on: an error below frees it with the object.
    unsafe self.context = context
    let privateKey = unsafe EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nil, identity.privateKey, identity.privateKey.count)
    defer { unsafe EVP_PKEY_free(privateKey) }
    guard unsafe sync_tls_only_version(context, TLS1_3_VERSION) == 1,
      unsafe sync_tls_set_signatures(context, "ed25519") == 1,
      // Every implementation with Ed25519 has it; more groups would only lengthen the handshake.
      unsafe sync_tls_set_groups(context, "X25519") == 1,
      unsafe SSL_CTX_set_num_tickets(context, 0) == 1,
      unsafe SSL_CTX_set_max_early_data(context, 0) == 1,
      unsafe SSL_CTX_use_certificate_ASN1(context, Int32(identity.certificate.count), identity.certificate)
        == 1,
      unsafe SSL_CTX_use_PrivateKey(context, privateKey) == 1
    else { throw Self.failure() }
    unsafe SSL_CTX_set_options(context, sync_tls_refusals)
    unsafe sync_tls_set_session_cache(context, Int(SSL_SESS_CACHE_OFF))
    unsafe sync_tls_set_certificate_limit(context, Self.certificateBytes)
    // Thousands of idle connections keep no record buffers.
    unsafe sync_tls_set_mode(context, Int(SSL_MODE_RELEASE_BUFFERS))
    unsafe SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
    // Replaces the verification of certificate chains: only the pin counts.
    unsafe SSL_CTX_set_cert_verify_callback(context, { store, _ in unsafe TLSContext.verify(store) }, nil)
    if role == .server {
      unsafe SSL_CTX_set_client_hello_cb(
        context, { connection, alert, _ in unsafe TLSContext.checkHello(connection, alert) }, nil)
      unsafe SSL_CTX_set_alpn_select_cb(
        context,
        { connection, selected, count, offered, offeredCount, _ in
          unsafe TLSContext.select(connection, selected, count, offered, offeredCount)
        }, nil)
    }
  }

  deinit { unsafe SSL_CTX_free(context) }

  /// A new connection, owned by the caller.
  func makeConnection() throws(ReplicationError) -> OpaquePointer {
    OpenSSLFailure.clear()
    guard let connection = unsafe SSL_new(context) else { throw Self.failure() }
    return unsafe connection
  }

  private static func failure() -> ReplicationError {
    OpenSSLFailure.error("TLS", advice: "check the configuration of OpenSSL on this machine")
  }

  /// Called with the peer's certificate. Only its key is checked; the signature over the handshake proves
  /// that the peer holds it.
  private static func verify(_ store: OpaquePointer?) -> Int32 {
    guard
      let connection = unsafe X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()),
      let engine = unsafe TLSEngine.owner(of: OpaquePointer(connection))
    else { return 0 }
    let key = unsafe X509_get0_pubkey(X509_STORE_CTX_get0_cert(store))
    let publicKey = unsafe key.flatMap { unsafe DeviceIdentity.publicKey(of: $0) }
    let accepted = engine.accepts(publicKey.map(DeviceIdentity.id(ofPublicKey:)))
    // Selects the alert that is sent to the peer.
    unsafe X509_STORE_CTX_set_error(store, accepted ? X509_V_OK : X509_V_ERR_CERT_REJECTED)
    return accepted ? 1 : 0
  }

  /// Called first, with the client's hello. OpenSSL would accept a hello without an application protocol.
  private static func checkHello(_ connection: OpaquePointer?, _ alert: UnsafeMutablePointer<Int32>?) -> Int32
  {
    var bytes: UnsafePointer<UInt8>?
    var count = 0
    let found = unsafe SSL_client_hello_get0_ext(
      connection, UInt32(TLSEXT_TYPE_application_layer_protocol_negotiation), &bytes, &count)
    guard found == 1 else {
      unsafe alert?.pointee = SSL_AD_NO_APPLICATION_PROTOCOL
      return SSL_CLIENT_HELLO_ERROR
    }
    return SSL_CLIENT_HELLO_SUCCESS
  }

  /// Called with the application protocols offered by the client.
  private static func select(
    _ connection: OpaquePointer?, _ selected: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
    _ selectedCount: UnsafeMutablePointer<UInt8>?, _ offered: UnsafePointer<UInt8>?, _ offeredCount: UInt32
  ) -> Int32 {
    guard let engine = unsafe TLSEngine.owner(of: connection), let offered = unsafe offered else {
      return SSL_TLSEXT_ERR_ALERT_FATAL
    }
    let bytes = unsafe Array(UnsafeBufferPointer(start: offered, count: Int(offeredCount)))
    guard let range = engine.choice(among: bytes) else { return SSL_TLSEXT_ERR_ALERT_FATAL }
    unsafe selected?.pointee = offered + range.lowerBound
    unsafe selectedCount?.pointee = UInt8(range.count)
    return SSL_TLSEXT_ERR_OK
  }
}

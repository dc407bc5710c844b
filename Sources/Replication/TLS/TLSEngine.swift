private import COpenSSL
package import SyncStore

/// One TLS connection without a socket: ciphertext and plaintext in, plaintext and ciphertext out.
///
/// Not thread-safe: one owner at a time.
///
/// Invariants:
/// - no application byte is sent, and none is passed to the owner, before the peer's key was accepted (F75);
/// - after a failure nothing is received, sent or passed on any more, except for the alert in
///   `takeOutgoing()`;
/// - all ciphertext is processed on arrival, so that at most what the owner has not taken is buffered here.
///
/// This is one of the few files that use `unsafe`: OpenSSL's objects are pointers. Pointers to the owner's
/// bytes are valid only during the call that received them.
@safe package final class TLSEngine {
  /// Decides whether the device may connect with this application protocol.
  package typealias Accept = (_ device: DeviceID, _ applicationProtocol: String) -> Bool

  /// The peer's key as presented in the handshake; accepted only once `isEstablished`.
  package private(set) var peer: DeviceID?
  /// Whether the handshake is complete and the peer accepted. It stays true after a close.
  package private(set) var isEstablished = false
  /// Whether the peer has closed its direction. A connection that ends without this was truncated.
  package private(set) var isClosedByPeer = false
  /// The error that ended the connection, if any.
  package private(set) var failure: ReplicationError?

  private let context: TLSContext
  private let connection: OpaquePointer
  private let protocols: [[UInt8]]
  private let accept: Accept
  private var isClosed = false
  private var refusal: ReplicationError?
  private var plaintext: [UInt8] = []
  private var outgoing: [UInt8] = []
  private var incoming = unsafe UnsafeRawBufferPointer(start: nil, count: 0)

  // The maximum plaintext of a record, and what a record adds to it (RFC 8446, 5.2; AEAD of 16 bytes).
  private static let recordBytes = 16384
  private static let recordOverheadBytes = 22

  /// Creates one end of a connection. A client's first bytes are available at once.
  ///
  /// - Parameters:
  ///   - alpn: The supported application protocols, best first, 1 to 255 bytes each.
  ///   - accept: Called once, during the handshake.
  package init(context: TLSContext, alpn: [String], accept: @escaping Accept) throws(ReplicationError) {
    precondition(
      !alpn.isEmpty && alpn.allSatisfy { (1...255).contains($0.utf8.count) },
      "application protocols have 1 to 255 bytes")
    self.context = context
    self.accept = accept
    protocols = alpn.map { Array($0.utf8) }
    unsafe connection = try context.makeConnection()
    let this = unsafe Unmanaged.passUnretained(self).toOpaque()
    unsafe SSL_set_ex_data(connection, 0, this)
    guard let bio = unsafe BIO_new(Self.bioMethod) else {
      throw OpenSSLFailure.error("TLS", advice: "free some memory")
    }
    unsafe BIO_set_data(bio, this)
    unsafe BIO_set_init(bio, 1)
    unsafe SSL_set_bio(connection, bio, bio)
    switch context.role {
    case .client:
      let list = protocols.flatMap { [UInt8($0.count)] + $0 }
      guard unsafe SSL_set_alpn_protos(connection, list, UInt32(list.count)) == 0 else {
        throw OpenSSLFailure.error("TLS", advice: "free some memory")
      }
      unsafe SSL_set_connect_state(connection)
      try advance()
    case .server:
      unsafe SSL_set_accept_state(connection)
    }
  }

  deinit { unsafe SSL_free(connection) }

  /// The negotiated application protocol; nil before the negotiation.
  package var negotiatedProtocol: String? {
    let name = selectedProtocol
    return name.isEmpty ? nil : String(decoding: name, as: UTF8.self)
  }

  /// Advice for an unknown device. Two devices invited by the same member learn of each other only when each
  /// syncs with that member again, or with another that knows both.
  static let cure =
    "if another member invited it, have both sides synchronize with a member that knows both, or else invite it"

  /// Processes ciphertext from the peer, any number of bytes.
  ///
  /// The results are in `isEstablished`, `takePlaintext()` and `takeOutgoing()`; the latter has something to
  /// send (an alert) even after a failure.
  ///
  /// `.notAMember` if a side does not accept the other's key, `.incompatible` if there is no common version
  /// or application protocol, `.protocolViolation` for anything else that is not TLS, or if more than
  /// `Limits.connectionBytes` of plaintext would be buffered.
  package func receive(_ ciphertext: [UInt8]) throws(ReplicationError) {
    if let failure { throw failure }
    guard !ciphertext.isEmpty, !isClosedByPeer else { return }
    guard plaintext.count + ciphertext.count <= Limits.connectionBytes else {
      throw fail(
        .protocolViolation, "\(plaintext.count) bytes have not been read: the connection is closed (F90)")
    }
    let result = unsafe ciphertext.withUnsafeBytes { bytes -> Result<Void, ReplicationError> in
      unsafe incoming = bytes
      defer { unsafe incoming = UnsafeRawBufferPointer(start: nil, count: 0) }
      return Result { () throws(ReplicationError) in try advance() }
    }
    try result.get()
  }

  /// Encrypts `plaintext`; the ciphertext is in `takeOutgoing()`. `.network` if the connection is closed or
  /// not yet established.
  package func send(_ plaintext: ArraySlice<UInt8>) throws(ReplicationError) {
    if let failure { throw failure }
    guard isEstablished, !isClosed else {
      throw ReplicationError(.network, "sending: the connection is not open: connect again")
    }
    guard !plaintext.isEmpty else { return }
    if outgoing.isEmpty {
      let records = plaintext.count / Self.recordBytes + 1
      outgoing.reserveCapacity(plaintext.count + records * Self.recordOverheadBytes)
    }
    OpenSSLFailure.clear()
    var written = 0
    let result = unsafe plaintext.withUnsafeBytes { bytes in
      unsafe SSL_write_ex(connection, bytes.baseAddress, bytes.count, &written)
    }
    guard result == 1, written == plaintext.count else { throw fail(result) }
  }

  /// Takes the ciphertext for the peer since the last call, in order.
  package func takeOutgoing() -> [UInt8] {
    let taken = outgoing
    outgoing = []
    return taken
  }

  /// Bytes that `takeOutgoing()` would return.
  package var outgoingCount: Int { outgoing.count }

  /// Takes the plaintext from the peer since the last call, in order.
  package func takePlaintext() -> [UInt8] {
    let taken = plaintext
    plaintext = []
    return taken
  }

  /// Exports keying material: `count` bytes that only both ends of this connection can compute, distinct for
  /// each connection, `label` and `context` (RFC 8446, 7.5; F77). `.network` if the connection is not
  /// established.
  package func exporter(label: String, context: [UInt8], count: Int) throws(ReplicationError) -> [UInt8] {
    guard isEstablished else {
      throw ReplicationError(.network, "exporting keying material: the handshake is not over: connect again")
    }
    let label = Array(label.utf8CString)
    var output = [UInt8](repeating: 0, count: count)
    OpenSSLFailure.clear()
    guard
      unsafe SSL_export_keying_material(
        connection, &output, count, label, label.count - 1, context, context.count, 1) == 1
    else {
      throw OpenSSLFailure.error("exporting keying material", advice: "connect again")
    }
    return output
  }

  /// Closes the sending direction; the message is in `takeOutgoing()`. Receiving continues. Idempotent.
  package func close() {
    guard isEstablished, !isClosed, failure == nil else { return }
    isClosed = true
    unsafe SSL_shutdown(connection)
    OpenSSLFailure.clear()
  }

  // MARK: Handshake callbacks

  /// The engine of a connection.
  static func owner(of connection: OpaquePointer?) -> TLSEngine? {
    unsafe SSL_get_ex_data(connection, 0).map {
      unsafe Unmanaged<TLSEngine>.fromOpaque($0).takeUnretainedValue()
    }
  }

  /// Whether the peer with this key is accepted; nil means a key of an unsupported kind.
  func accepts(_ device: DeviceID?) -> Bool {
    let name = selectedProtocol
    guard protocols.contains(name) else {
      refusal = ReplicationError(
        .incompatible, noCommonProtocol)
      return false
    }
    peer = device
    guard let device, accept(device, String(decoding: name, as: UTF8.self)) else {
      let shown = device.map { "device \($0)" } ?? "a key that is not Ed25519"
      refusal = ReplicationError(
        .notAMember,
        "TLS: the other side shows \(shown), which is not accepted here: \(Self.cure)")
      return false
    }
    return true
  }

  /// The range in `offered` (a count byte before each name) of the protocol that we prefer.
  func choice(among offered: [UInt8]) -> Range<Int>? {
    var ranges: [Range<Int>] = []
    var index = 0
    while index < offered.count, index + 1 + Int(offered[index]) <= offered.count {
      let next = index + 1 + Int(offered[index])
      ranges.append(index + 1..<next)
      index = next
    }
    for name in protocols {
      if let range = ranges.first(where: { offered[$0].elementsEqual(name) }) { return range }
    }
    return nil
  }

  private var selectedProtocol: [UInt8] {
    var name: UnsafePointer<UInt8>?
    var count: UInt32 = 0
    unsafe SSL_get0_alpn_selected(connection, &name, &count)
    return unsafe Array(UnsafeBufferPointer(start: name, count: Int(count)))
  }

  // MARK: OpenSSL calls

  private func advance() throws(ReplicationError) {
    OpenSSLFailure.clear()
    if !isEstablished {
      let result = unsafe SSL_do_handshake(connection)
      guard result == 1 else {
        if unsafe SSL_get_error(connection, result) == SSL_ERROR_WANT_READ { return }
        throw fail(result)
      }
      // Whatever OpenSSL reports: without an accepted peer there is no connection.
      guard peer != nil, refusal == nil else {
        throw fail(.protocolViolation, "TLS: the other side has not shown a key: the connection is closed")
      }
      isEstablished = true
    }
    try decrypt()
  }

  private func decrypt() throws(ReplicationError) {
    var result: Int32 = 1
    // The bytes here, and a record that began in earlier ones.
    let capacity = unsafe incoming.count + Self.recordBytes
    plaintext.append(addingCapacity: capacity) { span in
      unsafe span.withUnsafeMutableBufferPointer { buffer, filled in
        while result == 1, filled < buffer.count, let start = buffer.baseAddress {
          var count = 0
          unsafe result = SSL_read_ex(connection, start + filled, buffer.count - filled, &count)
          filled += count
        }
      }
    }
    guard result != 1 else { return }
    switch unsafe SSL_get_error(connection, result) {
    case SSL_ERROR_WANT_READ: return
    case SSL_ERROR_ZERO_RETURN: isClosedByPeer = true
    default: throw fail(result)
    }
  }

  private func fail(_ result: Int32) -> ReplicationError {
    let (reason, text) = OpenSSLFailure.take()
    if let refusal {
      failure = refusal
      return refusal
    }
    switch reason {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
      return fail(
        .notAMember,
        "TLS: the other side does not accept our key: if this copy is a member, have both sides synchronize with a member "
          + "that knows both; if not, ask one of its members for an invitation")
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return fail(.notAMember, "TLS: the other side shows no key: it is not a copy of a store")
    case SSL_R_NO_APPLICATION_PROTOCOL, SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
      return fail(.incompatible, noCommonProtocol)
    case SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, SSL_R_WRONG_SSL_VERSION,
      SSL_R_BAD_PROTOCOL_VERSION_NUMBER, SSL_R_CLIENTHELLO_TLSEXT, SSL_R_CALLBACK_FAILED:
      return fail(.incompatible, "TLS: \(text): update the older side, or check that the port is right")
    default:
      return fail(.protocolViolation, "TLS: \(text): check that the port is right")
    }
  }

  /// No common application protocol (ALPN): another service, or another version of this one.
  private var noCommonProtocol: String {
    let own = protocols.map { String(decoding: $0, as: UTF8.self) }.joined(separator: ", ")
    return
      "TLS: the other side speaks no application protocol that this one does (\(own)): check that host and port are those "
      + "of a copy, or update the older side"
  }

  private func fail(_ code: ReplicationError.Code, _ message: String) -> ReplicationError {
    let error = ReplicationError(code, message)
    failure = error
    plaintext = []
    return error
  }

  // MARK: OpenSSL transport (BIO)

  /// Reads from the bytes of the current call and appends to `outgoing`, without a buffer of its own.
  private nonisolated(unsafe) static let bioMethod: OpaquePointer? = {
    let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "syncstore")
    unsafe BIO_meth_set_read(method) { bio, output, count in
      unsafe TLSEngine.owner(ofBIO: bio)?.read(bio, into: output, atMost: Int(count)) ?? -1
    }
    unsafe BIO_meth_set_write(method) { bio, bytes, count in
      unsafe TLSEngine.owner(ofBIO: bio)?.write(bytes, count: Int(count)) ?? -1
    }
    unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
    return unsafe method
  }()

  private static func owner(ofBIO bio: OpaquePointer?) -> TLSEngine? {
    unsafe BIO_get_data(bio).map { unsafe Unmanaged<TLSEngine>.fromOpaque($0).takeUnretainedValue() }
  }

  private func read(_ bio: OpaquePointer?, into output: UnsafeMutablePointer<CChar>?, atMost count: Int)
    -> Int32
  {
    unsafe BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
    let next = unsafe min(count, incoming.count)
    guard next > 0, let output = unsafe output else {
      unsafe BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
      return -1
    }
    unsafe UnsafeMutableRawBufferPointer(start: output, count: next)
      .copyMemory(from: UnsafeRawBufferPointer(rebasing: incoming[..<next]))
    unsafe incoming = UnsafeRawBufferPointer(rebasing: incoming[next...])
    return Int32(next)
  }

  private func write(_ bytes: UnsafePointer<CChar>?, count: Int) -> Int32 {
    unsafe outgoing.append(contentsOf: UnsafeRawBufferPointer(start: bytes, count: count))
    return Int32(count)
  }
}

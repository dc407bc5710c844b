internal import CCurl
internal import SyncStore

/// A request in the form that `TransferDriver` sends.
struct HTTPRequest: Sendable {
  var method: String
  var url: String
  /// Fields, without `Host` and `Content-Length`.
  var headers: [(name: String, value: String)] = []
  /// The body; nil for a request without one.
  var body: ArraySlice<UInt8>?
  /// The most bytes of the body of a successful answer that are read.
  var limit: Int

  /// The header lines. Values never contain a line end.
  var headerLines: String {
    headers.map { $0.value.isEmpty ? "\($0.name):\n" : "\($0.name): \($0.value)\n" }.joined()
  }
}

/// One request on its way, and its answer.
///
/// Invariant: `state` is accessed only on the thread of the driver, and after the transfer has ended by the
/// caller that it was handed to.
///
/// This is one of the few files that use `unsafe`: libcurl calls back with addresses.
@safe final class Transfer: Sendable {
  /// The end of a transfer.
  struct Outcome: Sendable {
    /// The answer, or why there is none.
    var answer: Result<HTTPAnswer, TransferFailure>
    /// The status of the answer; 0 if its head did not arrive.
    var status = 0
    /// Whether any byte of the request was sent.
    var wasSent = false
    /// Bytes of the bodies of the request and of the answer that were moved.
    var sentBytes = 0, receivedBytes = 0
  }

  private struct State {
    var head = HTTPHead()
    var body: [UInt8] = []
    /// Bytes of the request's body that libcurl has taken.
    var sent = 0
    var isTooLarge = false
    var isNoAnswer = false
    var ended: (@Sendable (Outcome) -> Void)?
  }

  /// An error message of a server is shorter.
  private static let mostErrorBytes = 256 << 10

  let request: HTTPRequest
  private nonisolated(unsafe) var state = State()

  /// A request; `ended` is called once, on the thread of the driver.
  init(_ request: HTTPRequest, ended: @escaping @Sendable (Outcome) -> Void) {
    self.request = request
    unsafe state.ended = ended
  }

  /// The most bytes of a body that are read.
  private var mostBytes: Int {
    let status = unsafe state.head.status
    return (200...299).contains(status) ? request.limit : Self.mostErrorBytes
  }

  // MARK: Calls of libcurl

  /// The callbacks for a transfer whose owner is an unretained `Transfer`.
  static var calls: sync_curl_calls {
    unsafe sync_curl_calls(
      send: { owner, into, most in
        guard let owner = unsafe owner, let into = unsafe into else { return 0 }
        return unsafe Unmanaged<Transfer>.fromOpaque(owner).takeUnretainedValue().send(
          into, atMost: Int(most))
      },
      seek: { owner, offset in
        guard let owner = unsafe owner else { return }
        unsafe Unmanaged<Transfer>.fromOpaque(owner).takeUnretainedValue().seek(to: Int(clamping: offset))
      },
      head: { owner, bytes, count in
        guard let owner = unsafe owner, let bytes = unsafe bytes else { return 0 }
        let line = unsafe [UInt8](UnsafeRawBufferPointer(start: bytes, count: Int(count)))
        return unsafe Unmanaged<Transfer>.fromOpaque(owner).takeUnretainedValue().takeHead(line) ? 1 : 0
      },
      body: { owner, bytes, count in
        guard let owner = unsafe owner, let bytes = unsafe bytes else { return 0 }
        let buffer = unsafe UnsafeRawBufferPointer(start: bytes, count: Int(count))
        return unsafe Unmanaged<Transfer>.fromOpaque(owner).takeUnretainedValue().takeBody(buffer) ? 1 : 0
      })
  }

  private func send(_ into: UnsafeMutablePointer<CChar>, atMost most: Int) -> UInt64 {
    guard let body = request.body else { return 0 }
    let start = unsafe state.sent
    let count = min(most, body.count - start)
    guard count > 0 else { return 0 }
    unsafe body.withUnsafeBytes { bytes in
      unsafe UnsafeMutableRawBufferPointer(start: into, count: count).copyMemory(
        from: UnsafeRawBufferPointer(rebasing: bytes[start..<(start + count)]))
    }
    unsafe state.sent += count
    return UInt64(count)
  }

  private func seek(to offset: Int) { unsafe state.sent = min(offset, request.body?.count ?? 0) }

  private func takeHead(_ line: [UInt8]) -> Bool {
    guard unsafe state.head.take(line) else {
      unsafe state.isNoAnswer = true
      return false
    }
    guard unsafe state.head.isComplete, let announced = unsafe state.head.bodyBytes else { return true }
    return unsafe accept(announced, reserves: state.body.isEmpty)
  }

  private func takeBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
    let count = unsafe state.body.count + bytes.count
    guard accept(UInt64(count), reserves: false) else { return false }
    unsafe state.body.append(contentsOf: bytes)
    return true
  }

  /// Checks the size of the body, as announced or as received so far, and reserves memory for an announced
  /// one: pages are not populated before bytes arrive.
  private func accept(_ count: UInt64, reserves: Bool) -> Bool {
    guard count <= UInt64(mostBytes) else {
      unsafe state.isTooLarge = true
      return false
    }
    if reserves { unsafe state.body.reserveCapacity(Int(count)) }
    return true
  }

  // MARK: End

  /// Ends the transfer. `failure` is nil if libcurl has read the whole answer.
  func end(_ failure: TransferFailure?, wasSent: Bool) {
    guard let ended = unsafe state.ended else { return }
    let head = unsafe state.head
    var outcome = Outcome(answer: .failure(.cancelled), status: head.isComplete ? head.status : 0)
    outcome.wasSent = wasSent
    (outcome.sentBytes, outcome.receivedBytes) = unsafe (state.sent, state.body.count)
    outcome.answer = unsafe result(failure, head: head, body: state.body)
    unsafe state = State()
    ended(outcome)
  }

  private func result(
    _ failure: TransferFailure?, head: HTTPHead, body: [UInt8]
  ) -> Result<HTTPAnswer, TransferFailure> {
    if unsafe state.isTooLarge {
      let isSuccess = (200...299).contains(head.status)
      return .failure(isSuccess ? .tooLarge : .broken("the error message of the server is too long"))
    }
    if unsafe state.isNoAnswer { return .failure(.broken("the server does not answer in HTTP")) }
    if let failure { return .failure(failure) }
    // libcurl takes the end of a connection for the end of an answer whose length is unknown.
    guard head.isComplete else { return .failure(.broken("the connection broke within the answer")) }
    guard head.isFramed else { return .failure(.broken("the answer does not state its length")) }
    return .success(HTTPAnswer(status: head.status, fields: head.fields, body: body))
  }
}

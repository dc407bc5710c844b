internal import Replication
internal import SyncStore

/// A request to a bucket, without what is the same for all of them.
struct S3Request: Sendable {
  /// The kind of request that it is billed as.
  var operation: ObjectOperation
  var method: String
  /// The object, relative to the prefix; nil for the bucket.
  var name: String?
  var query: [(name: String, value: String)] = []
  var headers: [(name: String, value: String)] = []
  var body: ArraySlice<UInt8>?
  /// The most bytes of a successful answer that are read.
  var limit = 4 << 20
}

/// An answer of a bucket.
struct S3Answer: Sendable {
  let http: HTTPAnswer
  /// What failed; nil for a success.
  let failure: S3Failure?

  var status: Int { http.status }

  /// The version that the answer states.
  var version: ObjectVersion? { http["etag"].flatMap { ObjectVersion(entityTag: $0) } }
}

extension ObjectVersion {
  /// A version from an entity tag; nil if it is empty. Some servers leave out the quotes in listings.
  init?(entityTag text: String) {
    var tag = text.utf8[...]
    if tag.count >= 2, tag.first == UInt8(ascii: "\""), tag.last == UInt8(ascii: "\"") {
      tag = tag.dropFirst().dropLast()
    }
    guard !tag.isEmpty else { return nil }
    self.init(tag: String(Substring(tag)).printable)
  }

  /// The form that conditions of requests have.
  var entityTag: String { tag.hasPrefix("W/") ? tag : "\"\(tag)\"" }
}

/// Signs requests, sends them, and repeats those that are worth it. Counts each that was sent.
final class S3Client: Sendable {
  /// The most times that a request is sent.
  static let mostAttempts = 6
  /// A call sends no request again after this time.
  static let patienceMilliseconds: UInt64 = 120_000
  /// The longest wait that a server may ask for.
  private static let mostWaitMilliseconds: UInt64 = 60_000
  /// A server is asked whether it will take a larger body before it is sent.
  private static let expectingBytes = 1 << 20

  let address: S3Address
  private let region: String
  private let reader: CredentialReader
  private let driver: TransferDriver
  private let machine: S3Machine
  private let clock = LockedField(ServerClock())
  private let counted = LockedField(ObjectStoreFigures())
  private let known = LockedField<S3Credentials?>(nil)

  init(_ address: S3Address, _ options: S3Options, machine: S3Machine) {
    (self.address, self.machine, region) = (address, machine, options.region)
    reader = CredentialReader(source: options.credentials)
    driver = TransferDriver(
      authorities: options.authorityFile, isDirect: address.isLoopback, seconds: options.timeoutSeconds)
  }

  var figures: ObjectStoreFigures { counted.withLock { $0 } }
  var statedClock: UInt64? { clock.withLock { $0.stated } }

  /// For messages.
  func text(_ request: S3Request) -> String {
    "\(address.location): \(request.method) \(request.name?.printable ?? "of the bucket")"
  }

  // MARK: Sending

  /// The state of a call.
  private struct Call {
    var credentials: S3Credentials
    let began: UInt64
    var backoff = Backoff(base: 500, cap: 20_000)
    var attempts = 0
    var hasCorrectedClock = false, hasReplacedCredentials = false
  }

  /// How a call continues after a request.
  private enum Step {
    case answer(S3Answer)
    /// Send it again at once.
    case again
    /// Send it again after a wait, at least as long as the server asks for; if that does not help, the error.
    case later(ObjectStoreError, wait: UInt64?)
  }

  /// Sends a request until it has an answer that is worth no repetition.
  ///
  /// - Throws: why it has none. An answer that states a failure is no error here.
  func send(_ request: S3Request) async throws(ObjectStoreError) -> S3Answer {
    var call = Call(credentials: try await credentials(), began: machine.elapsed())
    let hash = request.body.map { Hex.string(of: SHA256.hash($0)) } ?? SignedRequest.noPayload
    while true {
      guard !Task.isCancelled else { throw cancelled(request) }
      call.attempts += 1
      let signedAt = clock.withLock { $0.time(own: machine.now()) }
      let outcome = await driver.send(http(request, hash: hash, credentials: call.credentials, at: signedAt))
      count(request, outcome)
      let step: Step
      switch outcome.answer {
      case .success(let answer): step = try await self.step(&call, request, answer, signedAt: signedAt)
      case .failure(let failure):
        step = .later(try error(request, failure, status: outcome.status), wait: nil)
      }
      switch step {
      case .answer(let answer): return answer
      case .again: continue
      case .later(let error, let asked):
        let wait = min(
          max(call.backoff.failed(random: machine.random()), asked ?? 0), Self.mostWaitMilliseconds)
        guard call.attempts < Self.mostAttempts,
          machine.elapsed() - call.began + wait < Self.patienceMilliseconds
        else { throw error }
        await machine.sleep(wait)
      }
    }
  }

  /// The signed request.
  private func http(
    _ request: S3Request, hash: String, credentials: S3Credentials, at time: UInt64
  ) -> HTTPRequest {
    let path = address.basePath + "/" + (request.name.map { address.prefix + $0 } ?? "")
    let signed = SignedRequest(
      method: request.method, host: address.host, path: path, query: request.query,
      headers: request.headers + [("x-amz-content-sha256", hash)], payloadHash: hash)
    let signer = RequestSigner(credentials: credentials, region: region)
    // Without a value libcurl sends no such field.
    let expects = (request.body?.count ?? 0) >= Self.expectingBytes
    let headers =
      signer.sign(signed, at: time) + [
        ("user-agent", "SyncStore"), ("expect", expects ? "100-continue" : ""),
      ]
    return HTTPRequest(
      method: request.method, url: "\(address.scheme)://\(address.host)\(signed.target)", headers: headers,
      body: request.body, limit: request.limit)
  }

  /// Decides on an answer.
  private func step(
    _ call: inout Call, _ request: S3Request, _ answer: HTTPAnswer, signedAt: UInt64
  ) async throws(ObjectStoreError) -> Step {
    let own = machine.now()
    // A completed upload may answer 200 with an error.
    let isSuccess = (200...299).contains(answer.status) && !Self.statesError(request, answer)
    let failure = isSuccess ? nil : S3Failure(answer)
    learnClock(answer, failure, own: own)
    let found = S3Answer(http: answer, failure: failure)
    guard let failure, ![304, 412, 416].contains(answer.status) else { return .answer(found) }
    if answer.status == 403 || answer.status == 400, !call.hasCorrectedClock,
      correctClock(failure, own: own, signedAt: signedAt)
    {
      call.hasCorrectedClock = true
      return .again
    }
    switch failure.remedy {
    case .none: return .answer(found)
    case .otherClock: throw failure.error(text(request))
    case .otherCredentials:
      guard !call.hasReplacedCredentials, let other = try await replacement(of: call.credentials) else {
        throw failure.error(text(request))
      }
      (call.credentials, call.hasReplacedCredentials) = (other, true)
      return .again
    case .later: return .later(failure.error(text(request)), wait: Self.wait(answer, own: own))
    }
  }

  /// Takes the time that the store states, and not that of a proxy, a portal or a cache in between.
  private func learnClock(_ answer: HTTPAnswer, _ failure: S3Failure?, own: UInt64) {
    guard failure?.isFromStore != false, answer.status < 500, answer["age"] == nil,
      let date = answer["date"].flatMap(ServerTime.http)
    else { return }
    clock.withLock { $0.learn(date, own: own) }
  }

  private static func statesError(_ request: S3Request, _ answer: HTTPAnswer) -> Bool {
    guard request.method == "POST" else { return false }
    guard let root = try? XMLElement(parsing: answer.body) else { return true }
    return root.name == "Error"
  }

  /// Whether the server's clock, as it is known now, is another one than the request was signed with.
  private func correctClock(_ failure: S3Failure, own: UInt64, signedAt: UInt64) -> Bool {
    clock.withLock { clock in
      if case .otherClock = failure.remedy, let time = failure.serverTime ?? clock.stated {
        clock.correct(time, own: own)
      }
      let difference = Int64(clock.time(own: own)) - Int64(signedAt)
      return abs(difference) > ServerClock.toleratedMilliseconds
    }
  }

  /// The wait that the server asks for.
  private static func wait(_ answer: HTTPAnswer, own: UInt64) -> UInt64? {
    guard let text = answer["retry-after"] else { return nil }
    if let seconds = UInt32(text) { return UInt64(seconds) * 1000 }
    let now = answer["date"].flatMap(ServerTime.http) ?? own
    return ServerTime.http(text).map { $0 > now ? $0 - now : 0 }
  }

  // MARK: Counting and errors

  private func count(_ request: S3Request, _ outcome: Transfer.Outcome) {
    guard outcome.wasSent else { return }
    counted.withLock {
      $0.count(
        request.operation, status: outcome.status, sent: request.method == "PUT" ? outcome.sentBytes : 0,
        received: request.operation == .get ? outcome.receivedBytes : 0)
    }
  }

  /// The error for a request without an answer, if repeating it may help.
  ///
  /// - Throws: the error, if repeating it does not help.
  private func error(
    _ request: S3Request, _ failure: TransferFailure, status: Int
  ) throws(ObjectStoreError) -> ObjectStoreError {
    let what = text(request)
    switch failure {
    case .broken(let why):
      return ObjectStoreError(.unreachable, "\(what): \(why): check the network and the server")
    case .unresolved(let why):
      return ObjectStoreError(.unreachable, "\(what): \(why): check the network, and the name of the server")
    case .untrusted(let why):
      throw ObjectStoreError(
        .unreachable, "\(what): \(why): check the clock, and the certificates that this machine trusts")
    case .unusable(let why): throw ObjectStoreError(.invalid, "\(what): \(why)")
    case .tooLarge:
      let limit = CountText.of(request.limit, noun: "byte")
      throw ObjectStoreError(
        .tooLarge, "\(what): it has more than \(limit): read a part of it, or raise the limit", status: status
      )
    case .cancelled: throw cancelled(request)
    }
  }

  private func cancelled(_ request: S3Request) -> ObjectStoreError {
    ObjectStoreError(.cancelled, "\(text(request)): the task was cancelled: call again if it is still wanted")
  }

  // MARK: Credentials

  private func credentials() async throws(ObjectStoreError) -> S3Credentials {
    if let known = known.withLock({ $0 }) { return known }
    return try await readCredentials()
  }

  /// The credentials of the source, if others are known, or stand there, than those that were refused.
  private func replacement(of refused: S3Credentials) async throws(ObjectStoreError) -> S3Credentials? {
    // Another call may have read them already.
    if let known = known.withLock({ $0 }), !known.isSame(as: refused) { return known }
    let found = try await readCredentials()
    return found.isSame(as: refused) ? nil : found
  }

  private func readCredentials() async throws(ObjectStoreError) -> S3Credentials {
    let reader = reader
    let result = await withCheckedContinuation { continuation in
      Background.runBlocking {
        continuation.resume(returning: Result { () throws(ObjectStoreError) in try reader.read() })
      }
    }
    let found = try result.get()
    known.withLock { $0 = found }
    return found
  }
}

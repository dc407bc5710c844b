public import Replication
internal import SyncStore

/// An object store in a bucket of S3, or of a server that speaks its protocol.
///
/// Thread-safe. All requests of a store share one thread and its connections; at most 16 are on their way at
/// once. A request that fails for a passing reason is sent up to 6 times, within 2 minutes, with growing
/// waits. Objects above 32 MiB are written in parts. Requests are signed with the server's clock where the
/// own one is off by more than 5 minutes.
///
/// ```swift
/// var options = try S3Options("s3://fleet/vessels")
/// options.endpoint = "https://storage.example.net"
/// options.credentials = .file("/etc/fleet/s3-credentials")
/// let store = try S3Store(options)
/// ```
public final class S3Store: ObjectStore {
  let client: S3Client
  let machine: S3Machine
  /// Whether the server has said that it does not implement conditional writes.
  private let ignoresConditions = LockedField(false)

  /// A store. Neither the network nor the credentials are used yet.
  ///
  /// - Throws: `.invalid` if an option is.
  public convenience init(_ options: S3Options) throws(ObjectStoreError) {
    try self.init(options, machine: S3Machine())
  }

  /// A store on another machine, for tests.
  ///
  /// - Throws: as `init(_:)`.
  package init(_ options: S3Options, machine: S3Machine) throws(ObjectStoreError) {
    client = S3Client(try S3Address(options), options, machine: machine)
    self.machine = machine
  }

  /// `s3://bucket/prefix`.
  public var location: String { client.address.location }
  /// Requests so far, each attempt by itself, and bytes of objects. A request that could not be sent is not
  /// counted.
  public var figures: ObjectStoreFigures { client.figures }
  /// The server's clock as of its last answer (`Date`).
  public var clock: UInt64? { client.statedClock }

  // MARK: Get

  /// Reads an object, or bytes of it; see `ObjectStore.get`.
  public func get(
    _ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int
  ) async throws(ObjectStoreError) -> ObjectReading {
    try check(name)
    var request = S3Request(operation: .get, method: "GET", name: name)
    request.limit = max(limit, 0)
    if let range {
      // An empty range has no form in HTTP.
      request.headers.append(
        ("range", "bytes=\(range.lowerBound)-\(max(range.upperBound, range.lowerBound + 1) - 1)"))
      if range.isEmpty { request.limit = max(request.limit, 1) }
    }
    if let known { request.headers.append(("if-none-match", known.entityTag)) }
    let answer = try await client.send(request)
    switch (answer.status, answer.failure) {
    case (200...299, _):
      if let known, answer.version == known { return .unchanged }
      return .found(try content(answer, range, request))
    case (304, _): return .unchanged
    case (416, _) where range != nil: return .found(ObjectContent(bytes: [], version: nil, modified: nil))
    case (_, let failure?) where failure.isAbsent: return .absent
    case (_, let failure): throw (failure ?? S3Failure(answer.http)).error(client.text(request))
    }
  }

  /// The content of a successful answer, whose server may have ignored the range. That is told by the field
  /// `Content-Range`: rclone serves a range with status 200.
  private func content(
    _ answer: S3Answer, _ range: Range<UInt64>?, _ request: S3Request
  ) throws(ObjectStoreError) -> ObjectContent {
    var bytes = answer.http.body
    let stated = answer.http["content-range"]
    if let range {
      let wanted = Int(clamping: range.upperBound - range.lowerBound)
      if let stated {
        let end = range.lowerBound &+ UInt64(bytes.count)
        guard !bytes.isEmpty, bytes.count <= max(wanted, 1),
          stated.hasPrefix("bytes \(range.lowerBound)-\(end &- 1)/")
        else { throw otherBytes(answer, request) }
        bytes = Array(bytes.prefix(wanted))
      } else {
        guard answer.status != 206 else { throw otherBytes(answer, request) }
        bytes = Array(bytes.dropFirst(Int(clamping: range.lowerBound)).prefix(wanted))
      }
    } else if stated != nil || answer.status == 206 {
      throw otherBytes(answer, request)
    }
    let modified = answer.http["last-modified"].flatMap(ServerTime.http)
    return ObjectContent(bytes: bytes, version: answer.version, modified: modified)
  }

  private func otherBytes(_ answer: S3Answer, _ request: S3Request) -> ObjectStoreError {
    ObjectStoreError(
      .invalid,
      "\(client.text(request)): the server has sent other bytes than those asked for: check the server",
      status: answer.status)
  }

  // MARK: Put

  /// Writes an object; see `ObjectStore.put`.
  public func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome {
    try check(name)
    let condition = ignoresConditions.withLock { $0 } ? .always : condition
    if let outcome = try await attemptPut(name, bytes, condition) { return outcome }
    ignoresConditions.withLock { $0 = true }
    guard let outcome = try await attemptPut(name, bytes, .always) else {
      throw ObjectStoreError(
        .invalid, "\(location): PUT \(name): the server does not implement it: use another server",
        status: 501)
    }
    return outcome
  }

  /// Nil if the server does not implement what was asked for.
  private func attemptPut(
    _ name: String, _ bytes: [UInt8], _ condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome? {
    guard bytes.count <= machine.singlePutBytes else {
      return try await MultipartUpload(client: client, name: name, machine: machine).put(bytes, if: condition)
    }
    var request = S3Request(operation: .put, method: "PUT", name: name)
    request.headers = condition.headers
    request.body = bytes[...]
    return try condition.outcome(of: try await client.send(request), client.text(request))
  }

  // MARK: Delete

  /// Deletes objects, each with a request of its own, eight at once; see `ObjectStore.delete`.
  public func delete(_ names: [String]) async throws(ObjectStoreError) {
    for name in names { try check(name) }
    let client = client
    let result = await ConcurrentCalls.run(names, atMost: 8) { name throws(ObjectStoreError) in
      let request = S3Request(operation: .delete, method: "DELETE", name: name)
      let answer = try await client.send(request)
      if let failure = answer.failure, !failure.isAbsent { throw failure.error(client.text(request)) }
    }
    _ = try result.get()
  }

  private func check(_ name: String) throws(ObjectStoreError) {
    guard ObjectName.isValid(name) else {
      throw ObjectStoreError(
        .invalid,
        "\(location): \"\(name.printable)\" is no name of an object: use a-z, 0-9, \"-\", \".\" and \"/\"")
    }
  }
}

extension PutCondition {
  /// The fields of a request with this condition.
  var headers: [(name: String, value: String)] {
    switch self {
    case .always: []
    case .absent: [("if-none-match", "*")]
    case .version(let version): [("if-match", version.entityTag)]
    }
  }

  /// What the answer to a request with this condition means; nil if the server does not implement the
  /// condition. `what` names the request.
  func outcome(of answer: S3Answer, _ what: String) throws(ObjectStoreError) -> PutOutcome? {
    guard let failure = answer.failure else { return .stored(answer.version) }
    if self == .always { throw failure.error(what) }
    if answer.status == 412 || answer.status == 409 { return .refused }
    // AWS answers so if there is no object whose version could match.
    if case .version = self, failure.isAbsent, failure.code == "NoSuchKey" { return .refused }
    if failure.isNotImplemented { return nil }
    throw failure.error(what)
  }
}

/// Runs a call for each of several inputs, some of them at once.
enum ConcurrentCalls {
  /// The answers, in the order of the inputs; or the first error, after which no further call begins.
  static func run<Input: Sendable, Answer: Sendable>(
    _ inputs: [Input], atMost width: Int,
    _ call: @escaping @Sendable (Input) async throws(ObjectStoreError) -> Answer
  ) async -> Result<[Answer], ObjectStoreError> {
    await withTaskGroup(of: (Int, Result<Answer, ObjectStoreError>).self) { group in
      var answers = [Answer?](repeating: nil, count: inputs.count)
      var (next, failure): (Int, ObjectStoreError?) = (0, nil)
      while true {
        while failure == nil, next < inputs.count, next < width { begin(&group, &next) }
        guard let (place, result) = await group.next() else { break }
        switch result {
        case .success(let answer):
          answers[place] = answer
          if failure == nil, next < inputs.count { begin(&group, &next) }
        case .failure(let error):
          // The others fail because they are cancelled.
          failure = failure ?? error
          group.cancelAll()
        }
      }
      if let failure { return .failure(failure) }
      return .success(answers.compactMap { $0 })

      func begin(
        _ group: inout TaskGroup<(Int, Result<Answer, ObjectStoreError>)>, _ next: inout Int
      ) {
        let place = next
        let input = inputs[place]
        next += 1
        group.addTask {
          do throws(ObjectStoreError) { return (place, .success(try await call(input))) } catch {
            return (place, .failure(error))
          }
        }
      }
    }
  }
}

internal import Replication
internal import SyncStore

/// Writes an object in parts, four at once. It exists when the upload is completed; one that fails, or is
/// cancelled, is aborted, so that its parts cost nothing.
struct MultipartUpload: Sendable {
  let client: S3Client
  let name: String
  let machine: S3Machine

  private static let partsAtOnce = 4

  /// Writes the object. Nil if the server does not implement what was asked for.
  func put(_ bytes: [UInt8], if condition: PutCondition) async throws(ObjectStoreError) -> PutOutcome? {
    let upload = try await begin()
    do throws(ObjectStoreError) {
      let outcome = try await complete(upload, try await send(bytes, upload), if: condition)
      if outcome == nil || outcome == .refused { await abort(upload) }
      return outcome
    } catch {
      await abort(upload)
      throw error
    }
  }

  private func request(_ operation: ObjectOperation, _ method: String) -> S3Request {
    S3Request(operation: operation, method: method, name: name)
  }

  /// The name of a new upload.
  private func begin() async throws(ObjectStoreError) -> String {
    var request = request(.put, "POST")
    request.query = [("uploads", "")]
    request.body = []
    let answer = try await client.send(request)
    if let failure = answer.failure { throw failure.error(client.text(request)) }
    guard let root = try? XMLElement(parsing: answer.http.body), let upload = root["UploadId"]?.text,
      !upload.isEmpty, upload.utf8.count <= 2048
    else {
      throw ObjectStoreError(
        .invalid, "\(client.text(request)): the answer names no upload: check the endpoint",
        status: answer.status)
    }
    return upload
  }

  /// Sends the parts. Returns their versions.
  private func send(_ bytes: [UInt8], _ upload: String) async throws(ObjectStoreError) -> [ObjectVersion] {
    let size = machine.partBytes
    let parts = stride(from: 0, to: bytes.count, by: size).map { $0..<min($0 + size, bytes.count) }
    let result = await ConcurrentCalls.run(Array(parts.enumerated()), atMost: Self.partsAtOnce) {
      part throws(ObjectStoreError) in
      var request = request(.put, "PUT")
      request.query = [("partNumber", "\(part.offset + 1)"), ("uploadId", upload)]
      request.body = bytes[part.element]
      let answer = try await client.send(request)
      if let failure = answer.failure { throw failure.error(client.text(request)) }
      guard let version = answer.version else {
        throw ObjectStoreError(
          .invalid, "\(client.text(request)): the server states no version of a part: check the endpoint",
          status: answer.status)
      }
      return version
    }
    return try result.get()
  }

  private func complete(
    _ upload: String, _ versions: [ObjectVersion], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome? {
    let parts = versions.enumerated().map { part in
      let tag = Self.escaped(part.element.entityTag)
      return "<Part><PartNumber>\(part.offset + 1)</PartNumber><ETag>\(tag)</ETag></Part>"
    }
    let text =
      "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\(parts.joined())"
      + "</CompleteMultipartUpload>"
    var request = request(.put, "POST")
    request.query = [("uploadId", upload)]
    request.headers = condition.headers + [("content-type", "application/xml")]
    request.body = Array(text.utf8)[...]
    let answer = try await client.send(request)
    let outcome = try condition.outcome(of: answer, client.text(request))
    guard case .stored(nil) = outcome, let root = try? XMLElement(parsing: answer.http.body) else {
      return outcome
    }
    return .stored(root["ETag"].flatMap { ObjectVersion(entityTag: $0.text) })
  }

  /// Drops the parts, also for a caller that was cancelled. A server that cannot be reached drops them by a
  /// rule of the bucket.
  private func abort(_ upload: String) async {
    var request = request(.delete, "DELETE")
    request.query = [("uploadId", upload)]
    let (client, last) = (client, request)
    await Task.detached { _ = try? await client.send(last) }.value
  }

  private static func escaped(_ text: String) -> String {
    text.unicodeScalars.map {
      switch $0 {
      case "&": "&amp;"
      case "<": "&lt;"
      case ">": "&gt;"
      case "\"": "&quot;"
      default: String($0)
      }
    }.joined()
  }
}

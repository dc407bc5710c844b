internal import Replication
internal import SyncStore

/// An answer that is no success: its status, and the code that S3 gives with it.
struct S3Failure: Sendable {
  let status: Int
  /// As in `NoSuchKey`; empty if the answer has none.
  let code: String
  /// The server's explanation, in one short line.
  let message: String
  /// The server's clock, if that is what it complains of.
  let serverTime: UInt64?
  /// The region in which the bucket is, if the request named another one.
  let region: String?
  /// Whether the body is one of S3, or empty: another body comes from something in between.
  let isFromStore: Bool

  /// The failure that an answer states.
  init(_ answer: HTTPAnswer) {
    let body = try? XMLElement(parsing: answer.body)
    let error = body?.name == "Error" ? body : nil
    status = answer.status
    code = String(decoding: (error?["Code"]?.text ?? "").printable.utf8.prefix(64), as: UTF8.self)
    message = String(decoding: (error?["Message"]?.text ?? "").printable.utf8.prefix(200), as: UTF8.self)
    serverTime = error?["ServerTime"].flatMap { ServerTime.iso($0.text) }
    // AWS states it with other failures, too.
    let isElsewhere = (300...399).contains(answer.status) || Self.elsewhere.contains(code)
    region = isElsewhere ? answer["x-amz-bucket-region"] ?? error?["Region"]?.text.printable : nil
    isFromStore = answer.body.isEmpty || error != nil
  }

  /// What can be done about it within the call.
  enum Remedy {
    /// Nothing: it is the answer.
    case none
    /// Repeat the request later. The code is for the case that this does not help.
    case later(ObjectStoreError.Code)
    /// Read the credentials again.
    case otherCredentials
    /// Sign with the server's clock.
    case otherClock
  }

  private static let refusedCredentials: StringSet = [
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
    "InvalidSecurity", "MissingSecurityHeader", "NotSignedUp", "AuthFailure", "XMinioInvalidAccessKey",
    "InvalidClientTokenId", "UnrecognizedClientException", "ExpiredTokenException",
  ]
  private static let throttling: StringSet = [
    "SlowDown", "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequests",
    "TooManyRequestsException", "RequestLimitExceeded", "BandwidthLimitExceeded", "RequestThrottled",
  ]
  private static let full: StringSet = [
    "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "ServiceQuotaExceeded",
    "StorageQuotaExceeded",
    "InsufficientCapacity", "XMinioAdminBucketQuotaExceeded", "LimitExceeded",
  ]
  private static let elsewhere: StringSet = [
    "PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
  ]
  /// Also with the status of success, as the end of an upload may have them.
  private static let internalErrors: StringSet = ["InternalError", "ServiceUnavailable"]
  private static let broken: StringSet = [
    "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "OperationAborted",
  ]

  /// The remedy.
  var remedy: Remedy {
    if code == "RequestTimeTooSkewed" || code == "RequestInTheFuture" { return .otherClock }
    if isFull { return .none }
    if status == 429 || Self.throttling.contains(code) { return .later(.throttled) }
    if status == 401 || Self.refusedCredentials.contains(code) { return .otherCredentials }
    if status == 408 || Self.broken.contains(code) { return .later(.unreachable) }
    if Self.internalErrors.contains(code) || (status >= 500 && !isNotImplemented) { return .later(.failed) }
    // A portal or a proxy in between, which may be gone soon.
    return isFromStore ? .none : .later(.invalid)
  }

  private var isFull: Bool { status == 507 || Self.full.contains(code) }

  /// Whether the store lacks what the request asks for.
  var isNotImplemented: Bool { status == 501 || code == "NotImplemented" }

  /// Whether the object is what does not exist.
  var isAbsent: Bool {
    status == 404 && isFromStore && (code.isEmpty || code == "NoSuchKey" || code == "NotFound")
  }

  /// The error for a call that ends with this. `what` names the request.
  func error(_ what: String) -> ObjectStoreError {
    let stated = code.isEmpty ? "status \(status)" : message.isEmpty ? code : "\(code) (\(message))"
    let (kind, why, advice): (ObjectStoreError.Code, String, String)
    if isFull {
      (kind, why, advice) = (.full, stated, "make room, or raise the quota of the bucket")
    } else if case .later(let code) = remedy {
      (kind, why) = (code, isFromStore ? stated : "status \(status) with a page that is not of S3")
      advice = "try again later; if it stays so, ask the operator of the server"
    } else if case .otherCredentials = remedy {
      // The server's explanation may quote what was sent.
      (kind, why) = (.credentials, "the credentials are refused: \(code.isEmpty ? "status \(status)" : code)")
      advice = "replace the key, its secret or its session token"
    } else if case .otherClock = remedy {
      (kind, why, advice) = (.credentials, stated, "set the clock of this machine")
    } else if code == "NoSuchUpload" {
      // Its parts were dropped; or the request that ended it was carried out, and the answer lost.
      (kind, why, advice) = (.failed, stated, "write the object again")
    } else if status == 404 {
      (kind, why, advice) = (.missing, stated, "create the bucket, or correct its name or the endpoint")
    } else if region != nil || (300...399).contains(status) {
      (kind, why) = (.invalid, "the bucket is elsewhere: \(stated)")
      advice = region.map { "set the region to \($0)" } ?? "set its region or its endpoint"
    } else if status == 403 {
      (kind, why, advice) = (.denied, stated, "grant these credentials the right to do this in the bucket")
    } else {
      (kind, why, advice) = (
        .invalid, stated, "check the endpoint and the bucket: this is no answer to expect"
      )
    }
    return ObjectStoreError(kind, "\(what): \(why): \(advice)", status: status)
  }
}

/// The answer to a request.
struct HTTPResponse: Sendable {
  /// The status codes that the daemon uses.
  enum Status: Int {
    case ok = 200
    case badRequest = 400
    case forbidden = 403
    case notFound = 404
    case methodNotAllowed = 405
    case timeout = 408
    case contentTooLarge = 413
    case headTooLarge = 431
    case internalError = 500
    case unavailable = 503
    case versionNotSupported = 505

    var reason: String {
      switch self {
      case .ok: "OK"
      case .badRequest: "Bad Request"
      case .forbidden: "Forbidden"
      case .notFound: "Not Found"
      case .methodNotAllowed: "Method Not Allowed"
      case .timeout: "Request Timeout"
      case .contentTooLarge: "Content Too Large"
      case .headTooLarge: "Request Header Fields Too Large"
      case .internalError: "Internal Server Error"
      case .unavailable: "Service Unavailable"
      case .versionNotSupported: "HTTP Version Not Supported"
      }
    }
  }

  var status = Status.ok
  /// The media type of the body.
  var type = plain
  var body: [UInt8] = []
  /// The value of Content-Security-Policy.
  var policy = "default-src 'none'"

  static let plain = "text/plain; charset=utf-8"

  /// A text, which ends with a line feed.
  static func text(_ text: String, _ status: Status = .ok, type: String = plain) -> HTTPResponse {
    HTTPResponse(status: status, type: type, body: Array(text.utf8))
  }

  /// The bytes to send. After an answer the connection is closed.
  func encoded(headOnly: Bool) -> [UInt8] {
    var lines = [
      "HTTP/1.1 \(status.rawValue) \(status.reason)", "Content-Type: \(type)",
      "Content-Length: \(body.count)",
      "Connection: close", "Cache-Control: no-store", "Content-Security-Policy: \(policy)",
      "X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "Referrer-Policy: no-referrer",
      "Cross-Origin-Resource-Policy: same-origin",
    ]
    if status == .methodNotAllowed { lines.append("Allow: GET, HEAD") }
    return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + (headOnly ? [] : body)
  }
}

extension HTTPResponse {
  /// The answer to a request that is refused.
  init(_ refusal: HTTPRefusal) { self = .text("\(refusal.text)\n", refusal.status) }
}

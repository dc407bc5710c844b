internal import Replication
internal import SyncStore

/// The parts of a request that its signature covers.
struct SignedRequest: Sendable {
  var method: String
  /// `host`, with the port if it is not the default one.
  var host: String
  /// The path, not encoded.
  var path: String
  /// The parameters, not encoded, in any order.
  var query: [(name: String, value: String)] = []
  /// Other fields to be signed, with names in lower case.
  var headers: [(name: String, value: String)] = []
  /// The SHA-256 of the body, in hexadecimal digits.
  var payloadHash: String

  /// The SHA-256 of no bytes.
  static let noPayload = Hex.string(of: SHA256.hash([]))

  /// The path and the parameters as they are sent. Both are encoded as they are signed, so that no server
  /// can read them in another way.
  var target: String {
    let parameters = canonicalQuery
    return PercentEncoding.encode(path, keeping: .slash) + (parameters.isEmpty ? "" : "?" + parameters)
  }

  /// The parameters, encoded and then sorted by their bytes.
  fileprivate var canonicalQuery: String {
    let encoded = query.map {
      (name: PercentEncoding.encode($0.name), value: PercentEncoding.encode($0.value))
    }
    let sorted = encoded.sorted { first, second in
      first.name == second.name ? first.value < second.value : first.name < second.name
    }
    return sorted.map { $0.name + "=" + $0.value }.joined(separator: "&")
  }
}

/// Signs requests with AWS Signature Version 4, in the header `Authorization`. Pure.
struct RequestSigner: Sendable {
  var credentials: S3Credentials
  var region: String
  var service = "s3"

  /// The fields to be sent with the request, except `host`: those of the request, the time, the token and the
  /// signature. `milliseconds` is the time since 1970 by the server's clock.
  func sign(_ request: SignedRequest, at milliseconds: UInt64) -> [(name: String, value: String)] {
    let time = Self.time(milliseconds)
    var headers = request.headers
    headers.append(("x-amz-date", time))
    if let token = credentials.sessionToken { headers.append(("x-amz-security-token", token)) }
    let signed = (headers + [("host", request.host)])
      .map { (name: $0.name, value: Self.trimmed($0.value)) }
      .sorted { $0.name < $1.name }
    let names = signed.map(\.name).joined(separator: ";")
    let canonical = [
      request.method, PercentEncoding.encode(request.path, keeping: .slash), request.canonicalQuery,
      signed.map { "\($0.name):\($0.value)\n" }.joined(), names, request.payloadHash,
    ].joined(separator: "\n")
    let scope = "\(time.prefix(8))/\(region)/\(service)/aws4_request"
    let text = [
      "AWS4-HMAC-SHA256", time, scope, Hex.string(of: SHA256.hash(Array(canonical.utf8))),
    ].joined(separator: "\n")
    let signature = Hex.string(of: HMACSHA256.code(for: Array(text.utf8), key: key(scope)))
    let authorization =
      "AWS4-HMAC-SHA256 Credential=\(credentials.accessKeyID)/\(scope), SignedHeaders=\(names), "
      + "Signature=\(signature)"
    return headers + [("authorization", authorization)]
  }

  /// The key for a scope: for each of its parts an HMAC, under the key for the parts before it.
  private func key(_ scope: String) -> [UInt8] {
    var key = credentials.secretAccessKey.withBytes { Array("AWS4".utf8) + [UInt8](copying: $0) }
    for part in scope.utf8.split(separator: UInt8(ascii: "/")) {
      var next = HMACSHA256.code(for: Array(part), key: key)
      swap(&key, &next)
      Secret.zero(&next)
    }
    return key
  }

  /// `20150830T123600Z`.
  static func time(_ milliseconds: UInt64) -> String {
    let text = UniversalTime.string(milliseconds: milliseconds)
    return String(text.unicodeScalars.prefix { $0 != "." }.filter { $0 != "-" && $0 != ":" }) + "Z"
  }

  /// The value without blanks at its ends, and with single ones within.
  private static func trimmed(_ value: String) -> String {
    value.utf8.split(separator: UInt8(ascii: " ")).map { String(Substring($0)) }.joined(separator: " ")
  }
}

/// Percent encoding (RFC 3986) as AWS specifies it for signatures.
enum PercentEncoding {
  /// Characters that are kept besides the unreserved ones.
  enum Kept {
    case none
    case slash
  }

  private static let digits = Array("0123456789ABCDEF".utf8)

  /// Encodes all bytes but letters, digits, `-`, `.`, `_` and `~`.
  static func encode(_ text: String, keeping kept: Kept = .none) -> String {
    var bytes: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"):
        bytes.append(byte)
      case UInt8(ascii: "/") where kept == .slash: bytes.append(byte)
      default: bytes += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// Decodes a text in which a plus sign is a blank. Nil if a percent sign is not followed by two digits.
  static func decode(_ text: String) -> String? {
    var (bytes, rest) = ([UInt8](), text.utf8[...])
    while let byte = rest.popFirst() {
      switch byte {
      case UInt8(ascii: "%"):
        guard rest.count >= 2, let value = Hex.bytes(of: String(decoding: rest.prefix(2), as: UTF8.self))
        else {
          return nil
        }
        bytes += value
        rest = rest.dropFirst(2)
      case UInt8(ascii: "+"): bytes.append(0x20)
      default: bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}

import Replication

/// A request to the daemon's pages: only its method, path and host matter.
struct HTTPRequest: Equatable {
  /// Whether only the head of the answer is wanted (HEAD).
  var wantsHeadOnly: Bool
  /// The path, which begins with a slash, without the query.
  var path: String
  /// The text after the question mark; empty if there is none.
  var query: String
  /// The host that the client believes to talk to, without the port; nil in HTTP/1.0 without a Host field.
  var host: String?
}

/// Why a request is answered with an error.
struct HTTPRefusal: Error, Equatable {
  var status: HTTPResponse.Status
  var text: String

  init(_ status: HTTPResponse.Status, _ text: String) { (self.status, self.text) = (status, text) }
}

/// Reads the head of one request (RFC 9112). No request has a body, and a connection carries one request.
///
/// Pure: bytes in, a request or a refusal out. Fuzzed by `HTTPRequests`.
struct HTTPRequestParser {
  /// Bound on the bytes of a head.
  static let headBytes = 8 << 10

  private var bytes: [UInt8] = []
  /// The bytes that are known not to hold the end of the head.
  private var searched = 0

  /// Takes received bytes. Nil as long as the head is not complete.
  mutating func receive(_ more: [UInt8]) throws(HTTPRefusal) -> HTTPRequest? {
    bytes += more.prefix(Self.headBytes + 1 - bytes.count)
    guard let end = endOfHead() else {
      guard bytes.count <= Self.headBytes else {
        throw HTTPRefusal(.headTooLarge, "the request has more than \(Self.headBytes) bytes")
      }
      return nil
    }
    return try Self.request(bytes[..<end])
  }

  /// The offset of the empty line that ends the head.
  private mutating func endOfHead() -> Int? {
    while searched + 4 <= bytes.count {
      if bytes[searched..<searched + 4].elementsEqual([0x0D, 0x0A, 0x0D, 0x0A]) { return searched }
      searched += 1
    }
    return nil
  }

  private static func request(_ head: ArraySlice<UInt8>) throws(HTTPRefusal) -> HTTPRequest {
    // A bare CR, a bare LF and NUL are what request smuggling is made of: none is part of any field.
    var lines: [ArraySlice<UInt8>] = []
    var rest = head
    while let end = rest.firstIndex(of: 0x0D) {
      guard end + 1 < rest.endIndex, rest[end + 1] == 0x0A else { throw malformed }
      lines.append(rest[..<end])
      rest = rest[(end + 2)...]
    }
    lines.append(rest)
    guard lines.allSatisfy({ line in line.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 } }) else {
      throw malformed
    }
    var request = try request(line: lines[0])
    let isNew = lines[0].suffix(3).elementsEqual("1.1".utf8)
    var fields = Fields()
    for line in lines.dropFirst() { try fields.read(line) }
    guard !fields.hasBody else { throw HTTPRefusal(.contentTooLarge, "a request here has no body") }
    guard fields.host != nil || !isNew else { throw HTTPRefusal(.badRequest, "the Host field is missing") }
    // The host of an absolute target counts (RFC 9112, 3.2.2).
    request.host = request.host ?? fields.host
    return request
  }

  /// The request line: method, target, version.
  private static func request(line: ArraySlice<UInt8>) throws(HTTPRefusal) -> HTTPRequest {
    let words = line.split(separator: 0x20, omittingEmptySubsequences: false)
    guard words.count == 3, words.allSatisfy({ !$0.isEmpty }), !line.contains(0x09) else { throw malformed }
    let version = String(decoding: words[2], as: UTF8.self)
    guard version == "HTTP/1.1" || version == "HTTP/1.0" else {
      guard version.utf8.starts(with: "HTTP/".utf8) else { throw malformed }
      throw HTTPRefusal(.versionNotSupported, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    }
    let method = String(decoding: words[0], as: UTF8.self)
    guard method == "GET" || method == "HEAD" else {
      throw HTTPRefusal(.methodNotAllowed, "nothing can be changed here: use GET or HEAD")
    }
    // Keys and names are not part of any path, so that nothing but ASCII is expected.
    guard words[1].allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { throw malformed }
    var target = Substring(String(decoding: words[1], as: UTF8.self))
    var host: String?
    if let scheme = ["http://", "https://"].first(where: { target.lowercased().utf8.starts(with: $0.utf8) }) {
      target = target.dropFirst(scheme.utf8.count)
      let authority = target.prefix { $0 != "/" && $0 != "?" }
      host = Self.host(of: String(authority))
      guard host != nil else { throw malformed }
      target = target.dropFirst(authority.count)
      if target.first != "/" { target = "/" + target }
    }
    guard target.first == "/" else { throw malformed }
    let path = target.prefix { $0 != "?" }
    return HTTPRequest(
      wantsHeadOnly: method == "HEAD", path: String(path), query: String(target.dropFirst(path.count + 1)),
      host: host)
  }

  /// The fields that matter.
  private struct Fields {
    var host: String?
    var hasBody = false

    mutating func read(_ line: ArraySlice<UInt8>) throws(HTTPRefusal) {
      // Neither a folded line nor space before the colon: servers disagree on what they mean (RFC 9112, 5).
      guard let colon = line.firstIndex(of: 0x3A), colon > line.startIndex,
        line[..<colon].allSatisfy({ $0 > 0x20 && $0 < 0x7F })
      else { throw HTTPRequestParser.malformed }
      let value = String(decoding: line[(colon + 1)...], as: UTF8.self).trimmed
      switch String(decoding: line[..<colon], as: UTF8.self).lowercased() {
      case "host":
        guard host == nil, let name = HTTPRequestParser.host(of: value) else {
          throw HTTPRequestParser.malformed
        }
        host = name
      case "transfer-encoding": hasBody = true
      case "content-length":
        guard value.utf8.allSatisfy({ (0x30...0x39).contains($0) }), !value.isEmpty else {
          throw HTTPRequestParser.malformed
        }
        if value.utf8.contains(where: { $0 != 0x30 }) { hasBody = true }
      default: break
      }
    }
  }

  /// The host in `host:port`, in lower case and without brackets; nil if it is none.
  private static func host(of authority: String) -> String? {
    // An empty port is the usual one (RFC 3986, 3.2.3).
    let authority = authority.utf8.last == 0x3A ? String(authority.dropLast()) : authority
    guard !authority.utf8.contains(0x40), let endpoint = Endpoint(authority), !endpoint.host.isEmpty else {
      return nil
    }
    return endpoint.host.lowercased()
  }

  private static let malformed = HTTPRefusal(.badRequest, "the request is malformed")
}

extension String {
  /// Without spaces and tabs at both ends.
  fileprivate var trimmed: String {
    let isSpace: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 }
    let inner = utf8.drop(while: isSpace)
    let count = inner.reversed().drop(while: isSpace).count
    return String(inner.prefix(count)) ?? ""
  }
}

/// A host and a port as people write them: `host:port`, `192.0.2.1:7420`, `[2001:db8::1]:7420`.
public struct Endpoint: Hashable, Sendable, CustomStringConvertible {
  /// The default port of a node.
  public static let defaultPort = WireLimits.defaultPort
  /// Maximum bytes of a host name (RFC 1035; also used for an address with its zone).
  public static let hostBytes = 255

  /// A name, or an address without brackets. Empty: every address when listening.
  public let host: String
  /// The port; 0 for any port when listening.
  public let port: UInt16

  /// Creates an endpoint without checking its parts.
  public init(host: String, port: UInt16 = defaultPort) { (self.host, self.port) = (host, port) }

  /// Parses `host:port`, `host`, `:port`, `[v6]:port`, `[v6]`.
  ///
  /// Nil for anything else. An IPv6 address needs brackets, because its last group could be a port.
  public init?(_ text: some StringProtocol) {
    // Scalars: in a `Character` a combining mark would hide the colon.
    let text = Substring(text).unicodeScalars
    let host: Substring.UnicodeScalarView
    let rest: Substring.UnicodeScalarView
    if text.first == "[" {
      guard let bracket = text.firstIndex(of: "]") else { return nil }
      host = text[text.index(after: text.startIndex)..<bracket]
      rest = text[text.index(after: bracket)...]
      guard host.contains(":") else { return nil }
    } else {
      host = text.prefix { $0 != ":" }
      rest = text[host.endIndex...]
      guard !host.contains("]") else { return nil }
    }
    let name = String(host)
    guard !text.isEmpty, name.utf8.count <= Self.hostBytes,
      !name.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7F || $0 == 0x2F })
    else { return nil }
    var port = Self.defaultPort
    if !rest.isEmpty {
      let digits = rest.dropFirst()
      guard rest.first == ":", digits.allSatisfy({ ("0"..."9").contains($0) }),
        let number = UInt16(String(digits))
      else { return nil }
      port = number
    }
    self.init(host: name, port: port)
  }

  /// `host:port`, with brackets around an IPv6 address.
  public var description: String {
    host.unicodeScalars.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
  }
}

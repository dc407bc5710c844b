public import Replication
internal import SyncStore

/// The place and the properties of an object store in an S3 bucket.
///
/// ```swift
/// var options = try S3Options("s3://fleet/vessels")
/// options.endpoint = "https://storage.example.net"
/// options.credentials = .file("/etc/fleet/s3-credentials")
/// let store = try S3Store(options)
/// ```
public struct S3Options: Sendable {
  /// The name of the bucket.
  public var bucket: String
  /// The prefix of the names of all objects, without a slash at its ends. Empty: the whole bucket.
  public var prefix: String
  /// The address of the server: `https://storage.example.net` or `http://127.0.0.1:9000`, with a path if all
  /// of its buckets lie below one. Nil: AWS.
  public var endpoint: String?
  /// The region that signatures name. Most servers other than AWS accept any.
  public var region = "us-east-1"
  /// Whether the bucket is part of the path or of the name of the host. Nil: of the path if there is an
  /// `endpoint`, of the name of the host at AWS.
  public var addressing: Addressing?
  /// A file of certificates (PEM) that replaces those of the system, for a server with a private authority.
  public var authorityFile: String?
  /// A request that moves less than 256 bytes per second for so many seconds is broken off, and repeated.
  public var timeoutSeconds: UInt32 = 60
  /// Where the credentials are read.
  public var credentials = S3CredentialSource.automatic
  /// Whether an `endpoint` without TLS may be on another machine. **The secret key is never sent, but a
  /// session token is, and everything can be read and changed on the way.**
  public var allowsPlainHTTP = false

  /// Where requests name the bucket.
  public enum Addressing: String, Hashable, Sendable, CaseIterable {
    /// `https://host/bucket/name`.
    case path
    /// `https://bucket.host/name`.
    case virtualHost = "virtual-host"
  }

  /// A bucket at AWS. Set the other properties for another server.
  public init(bucket: String, prefix: String = "") { (self.bucket, self.prefix) = (bucket, prefix) }

  /// Parses `s3://BUCKET/PREFIX`; the prefix may be absent, or end with a slash.
  ///
  /// - Throws: `.invalid` if the address has another form.
  public init(_ address: String) throws(ObjectStoreError) {
    let scheme = "s3://"
    guard address.utf8.starts(with: scheme.utf8) else {
      throw ObjectStoreError(
        .invalid,
        "\"\(address.printable)\": is no address of a bucket: write s3://BUCKET or s3://BUCKET/PREFIX")
    }
    let rest = address.utf8.dropFirst(scheme.utf8.count)
    let bucket = rest.prefix { $0 != UInt8(ascii: "/") }
    var prefix = rest.dropFirst(bucket.count + 1)
    if prefix.count > 1, prefix.last == UInt8(ascii: "/") { prefix = prefix.dropLast() }
    self.init(bucket: String(Substring(bucket)), prefix: String(Substring(prefix)))
    _ = try S3Address(self)
  }
}

/// The checked address of a bucket: builds the host and the path of each request.
struct S3Address: Sendable {
  let scheme: String
  /// The host and the port of requests, as in `Host`.
  let host: String
  /// The path of the bucket: empty, or `/` and parts.
  let basePath: String
  /// Empty, or with a slash at its end.
  let prefix: String
  /// `s3://bucket/prefix`.
  let location: String
  /// Whether the server is this machine.
  let isLoopback: Bool

  /// A name of at most `ObjectName.maximumBytes` follows; a bucket allows 1,024.
  static let mostPrefixBytes = 700

  /// - Throws: `.invalid` if an option is.
  init(_ options: S3Options) throws(ObjectStoreError) {
    location = "s3://" + (options.bucket + (options.prefix.isEmpty ? "" : "/" + options.prefix)).printable
    try Self.check(options, location)
    guard let endpoint = options.endpoint else {
      let server = "s3.\(options.region).amazonaws.com" + (options.region.hasPrefix("cn-") ? ".cn" : "")
      // A certificate for *.s3.amazonaws.com does not cover a bucket with dots in its name.
      let isInPath =
        options.addressing == .path || (options.addressing == nil && options.bucket.utf8.contains(0x2E))
      (scheme, isLoopback) = ("https", false)
      host = isInPath ? server : options.bucket + "." + server
      basePath = isInPath ? "/" + options.bucket : ""
      prefix = options.prefix.isEmpty ? "" : options.prefix + "/"
      return
    }
    let server = try Server(endpoint)
    guard server.scheme == "https" || server.isLoopback || options.allowsPlainHTTP else {
      throw ObjectStoreError(
        .invalid,
        "\(endpoint.printable): has no TLS, and is another machine: write https://, or allow plain HTTP")
    }
    let isInPath = options.addressing != .virtualHost
    guard isInPath || !server.isAddress else {
      throw ObjectStoreError(
        .invalid, "\(endpoint.printable): an address has no virtual hosts: use path style, or a name")
    }
    (scheme, isLoopback) = (server.scheme, server.isLoopback)
    host = isInPath ? server.authority : options.bucket + "." + server.authority
    basePath = server.path + (isInPath ? "/" + options.bucket : "")
    prefix = options.prefix.isEmpty ? "" : options.prefix + "/"
  }

  private static func check(_ options: S3Options, _ location: String) throws(ObjectStoreError) {
    let bucket = Array(options.bucket.utf8)
    let isName = bucket.allSatisfy {
      switch $0 {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), 0x2D, 0x2E: true
      default: false
      }
    }
    guard (3...63).contains(bucket.count), isName, bucket.first != 0x2D, bucket.first != 0x2E,
      bucket.last != 0x2D, bucket.last != 0x2E
    else {
      throw ObjectStoreError(
        .invalid,
        "\(location): its bucket is no valid name: use 3 to 63 of a-z, 0-9, \"-\" and \".\""
      )
    }
    let parts = options.prefix.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    let isUsable = parts.allSatisfy {
      !$0.isEmpty && !$0.elementsEqual(".".utf8) && !$0.elementsEqual("..".utf8)
    }
    guard options.prefix.isEmpty || isUsable, options.prefix.utf8.count <= mostPrefixBytes,
      options.prefix == options.prefix.printable
    else {
      throw ObjectStoreError(
        .invalid,
        "\(location): its prefix is not usable: \(mostPrefixBytes) bytes at most, no part empty, \".\", \"..\""
      )
    }
    let region = options.region.utf8
    guard (1...40).contains(region.count), region.allSatisfy({ Server.isOfName($0) && $0 != 0x2E }) else {
      throw ObjectStoreError(
        .invalid, "\(options.region.printable): is no name of a region: use letters, digits and \"-\"")
    }
    guard (1...3600).contains(options.timeoutSeconds) else {
      throw ObjectStoreError(
        .invalid, "\(location): a timeout of \(options.timeoutSeconds) s: choose 1 to 3600 s")
    }
  }

  /// The parsed address of a server.
  private struct Server {
    var scheme = ""
    var authority = ""
    var path = ""
    var isAddress = false
    var isLoopback = false

    init(_ text: String) throws(ObjectStoreError) {
      let bytes = text.utf8
      for scheme in ["https", "http"] where bytes.starts(with: (scheme + "://").utf8) { self.scheme = scheme }
      let rest = bytes.dropFirst(scheme.utf8.count + 3)
      let authority = rest.prefix { $0 != UInt8(ascii: "/") }
      var path = rest.dropFirst(authority.count)
      while path.last == UInt8(ascii: "/") { path = path.dropLast() }
      guard !scheme.isEmpty, let (name, port) = Self.split(authority),
        path.allSatisfy({ Self.isOfName($0) || $0 == 0x2F || $0 == 0x5F || $0 == 0x7E })
      else {
        throw ObjectStoreError(
          .invalid,
          "\(text.printable): is no address of a server: write https://HOST or https://HOST:PORT, and no user"
        )
      }
      let host = String(Substring(name)).lowercased()
      let isDefault = port == (scheme == "https" ? 443 : 80)
      self.authority = host + (isDefault ? "" : port.map { ":\($0)" } ?? "")
      self.path = String(Substring(path))
      let isNumeric = name.allSatisfy { (0x30...0x39).contains($0) || $0 == 0x2E }
      isAddress = isNumeric || name.first == UInt8(ascii: "[")
      isLoopback =
        host == "localhost" || host == "[::1]" || (isNumeric && host.utf8.starts(with: "127.".utf8))
    }

    /// The name or the bracketed address of a host, and its port if there is one; nil if malformed.
    private static func split(_ text: Substring.UTF8View) -> (name: Substring.UTF8View, port: Int?)? {
      let isBracketed = text.first == UInt8(ascii: "[")
      guard
        let end = isBracketed
          ? text.firstIndex(of: UInt8(ascii: "]")).map({ text.index(after: $0) })
          : text.firstIndex(of: UInt8(ascii: ":")) ?? text.endIndex
      else { return nil }
      let (name, rest) = (text[..<end], text[end...])
      let isName =
        isBracketed
        ? name.dropFirst().dropLast().allSatisfy { $0 == 0x3A || $0 == 0x2E || isOfName($0) }
        : name.allSatisfy { isOfName($0) }
      guard isName, !name.isEmpty else { return nil }
      if rest.isEmpty { return (name, nil) }
      guard rest.first == UInt8(ascii: ":"), let port = Int(String(Substring(rest.dropFirst()))),
        (1...65535).contains(port)
      else { return nil }
      return (name, port)
    }

    /// Whether a byte may be in the name of a host.
    static func isOfName(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."):
        true
      default: false
      }
    }
  }
}

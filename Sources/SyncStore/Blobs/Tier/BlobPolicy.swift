/// Which large values a copy receives together with the records that refer to them.
///
/// Values left out are fetched when they are read. The policy does not affect values put on this copy: they
/// stay until others hold them and `BlobLimits` evicts them.
public struct BlobPolicy: Hashable, Sendable {
  /// Values of at most this many bytes are received at once; `UInt64.max` for all, 0 for none.
  public var eagerBytes: UInt64
  /// Values of keys that begin with one of these are received at once, whatever their size.
  public var eagerPrefixes: [[UInt8]]

  /// Values of at most this many bytes, and those of keys with these prefixes.
  public init(eagerBytes: UInt64, eagerPrefixes: [[UInt8]] = []) {
    (self.eagerBytes, self.eagerPrefixes) = (eagerBytes, eagerPrefixes)
  }

  /// Receives all values at once: the default.
  public static let eager = BlobPolicy(eagerBytes: .max)
  /// Receives no values: each is fetched when it is first read.
  public static let lazy = BlobPolicy(eagerBytes: 0)
  /// Receives values of at most this many bytes at once.
  public static func eager(upTo bytes: UInt64) -> BlobPolicy { BlobPolicy(eagerBytes: bytes) }
  /// Receives values of keys with one of these prefixes at once.
  public static func eager(prefixes: [[UInt8]]) -> BlobPolicy {
    BlobPolicy(eagerBytes: 0, eagerPrefixes: prefixes)
  }

  /// Maximum number of prefixes.
  public static let maximumPrefixes = 256

  /// Whether every value is received at once.
  public var takesAll: Bool { eagerBytes == .max || eagerPrefixes.contains([]) }

  /// Whether a value of this size under this key is received at once.
  public func takes(_ key: [UInt8], bytes: UInt64) -> Bool {
    bytes <= eagerBytes || eagerPrefixes.contains { key.starts(with: $0) }
  }
}

/// How much of the large values a copy keeps.
///
/// Beyond the limits the least recently used values are evicted, but only those that other members have just
/// confirmed to hold: they are fetched again when they are read.
public struct BlobLimits: Hashable, Sendable {
  /// Maximum number of objects.
  public var count = UInt64.max
  /// Maximum bytes of objects on disk.
  public var bytes = UInt64.max
  /// Objects not put or read for this many milliseconds are evicted.
  public var ageMilliseconds = UInt64.max
  /// Objects are evicted while their file system has fewer bytes free than this.
  public var freeDiskBytes: UInt64 = 0
  /// Number of other members that must hold an object before it is evicted; at least 1.
  public var copies = 1
  /// Seconds between two trims in the background by a running `Node`; 0 for none.
  public var trimSeconds: UInt32 = 60

  /// No limits.
  public init() {}

  /// Whether anything is limited.
  public var hasLimits: Bool {
    count != .max || bytes != .max || ageMilliseconds != .max || freeDiskBytes > 0
  }
}

/// Settings of a copy for its large values, durable and shared by all processes that use it.
struct BlobSettings: Hashable, Sendable {
  var policy = BlobPolicy.eager
  var limits = BlobLimits()

  private static let version: UInt8 = 1

  /// Encoded as the value of the local key `blobs/settings` (`schemas/blobs.md`).
  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.write(Self.version)
    writer.write(policy.eagerBytes)
    writer.write(limits.count)
    writer.write(limits.bytes)
    writer.write(limits.ageMilliseconds)
    writer.write(limits.freeDiskBytes)
    writer.write(UInt32(limits.copies))
    writer.write(limits.trimSeconds)
    writer.writeVariable(UInt64(policy.eagerPrefixes.count))
    for prefix in policy.eagerPrefixes { writer.write(counted: prefix) }
    return writer.bytes
  }

  init() {}

  init(_ bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    guard try reader.read(UInt8.self) >= Self.version else { throw DecodingFailure("settings of blobs") }
    policy.eagerBytes = try reader.read()
    limits.count = try reader.read()
    limits.bytes = try reader.read()
    limits.ageMilliseconds = try reader.read()
    limits.freeDiskBytes = try reader.read()
    limits.copies = Int(clamping: try reader.read(UInt32.self))
    limits.trimSeconds = try reader.read()
    for _ in 0..<(try reader.readCount(limit: BlobPolicy.maximumPrefixes)) {
      policy.eagerPrefixes.append(try reader.readCounted(limit: Limits.keyBytes))
    }
  }

  func checked() throws(StoreError) -> BlobSettings {
    guard policy.eagerPrefixes.count <= BlobPolicy.maximumPrefixes,
      policy.eagerPrefixes.allSatisfy({ $0.count <= Limits.keyBytes })
    else {
      throw StoreError(
        .outOfBounds,
        "a policy for large values has at most \(BlobPolicy.maximumPrefixes) prefixes of \(Limits.keyBytes) bytes each: name fewer"
      )
    }
    guard (1...Limits.blobCopies).contains(limits.copies) else {
      throw StoreError(
        .outOfBounds,
        "of large values that leave, other members must hold from 1 to \(Limits.blobCopies) copies: choose a number in that range"
      )
    }
    return self
  }
}

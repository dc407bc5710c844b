/// Which large values a copy takes with the records that name them. What is left out is fetched when it is read.
///
/// It says nothing of values that were put here: those are here until others hold them, and `BlobLimits` makes them leave.
public struct BlobPolicy: Hashable, Sendable {
  /// Values of at most so many bytes are taken at once; `UInt64.max` for all, 0 for none.
  public var eagerBytes: UInt64
  /// Of keys that begin with one of these, values of any size are.
  public var eagerPrefixes: [[UInt8]]

  /// Values of at most so many bytes, and those of keys with these beginnings.
  public init(eagerBytes: UInt64, eagerPrefixes: [[UInt8]] = []) {
    (self.eagerBytes, self.eagerPrefixes) = (eagerBytes, eagerPrefixes)
  }

  /// All: the default.
  public static let eager = BlobPolicy(eagerBytes: .max)
  /// None: each is fetched when it is read first.
  public static let lazy = BlobPolicy(eagerBytes: 0)
  /// Those of at most so many bytes.
  public static func eager(upTo bytes: UInt64) -> BlobPolicy { BlobPolicy(eagerBytes: bytes) }
  /// Those of keys that begin with one of these.
  public static func eager(prefixes: [[UInt8]]) -> BlobPolicy {
    BlobPolicy(eagerBytes: 0, eagerPrefixes: prefixes)
  }

  /// Prefixes, at most.
  public static let maximumPrefixes = 256

  /// Is every value taken at once?
  public var takesAll: Bool { eagerBytes == .max || eagerPrefixes.contains([]) }

  /// Is a value of so many bytes taken at once, under this key?
  public func takes(_ key: [UInt8], bytes: UInt64) -> Bool {
    bytes <= eagerBytes || eagerPrefixes.contains { key.starts(with: $0) }
  }
}

/// How much of the large values a copy keeps. What exceeds it leaves, the least recently used first; but only what other
/// members have just confirmed to hold: it is fetched again when it is read.
public struct BlobLimits: Hashable, Sendable {
  /// At most so many objects.
  public var count = UInt64.max
  /// At most so many bytes of them on the disk.
  public var bytes = UInt64.max
  /// Objects that nobody has put or read for so many milliseconds leave.
  public var ageMilliseconds = UInt64.max
  /// Objects leave while the file system on which they lie has fewer bytes free.
  public var freeDiskBytes: UInt64 = 0
  /// How many other members must hold what leaves; at least 1.
  public var copies = 1
  /// Seconds between two looks in the background, by a running `Node`; 0 for none.
  public var trimSeconds: UInt32 = 60

  /// No limits.
  public init() {}

  /// Is anything limited?
  public var hasLimits: Bool {
    count != .max || bytes != .max || ageMilliseconds != .max || freeDiskBytes > 0
  }
}

/// What a copy keeps of itself about its large values, durably and for all processes that use it.
struct BlobSettings: Hashable, Sendable {
  var policy = BlobPolicy.eager
  var limits = BlobLimits()

  private static let version: UInt8 = 1

  /// As the value of the local key `blobs/settings` (`schemas/blobs.md`).
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

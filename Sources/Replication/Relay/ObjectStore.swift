/// A flat collection of named objects that runs none of our code: a bucket, or a directory.
///
/// Names are relative to the bucket's prefix or the directory; they consist of `a-z`, `0-9`, `-`, `.` and `/`
/// (`ObjectName.isValid`). All calls may run concurrently. Implementations retry what is worth retrying and
/// count every request that they send (`figures`).
///
/// ```swift
/// func contents(of name: String, in store: any ObjectStore) async throws(ObjectStoreError) -> [UInt8]? {
///   guard case .found(let object) = try await store.get(name) else { return nil }
///   return object.bytes
/// }
/// ```
public protocol ObjectStore: Sendable {
  /// Its address for messages: `s3://bucket/prefix`, `dir:/media/stick`. Contains no secret.
  var location: String { get }
  /// Requests so far.
  var figures: ObjectStoreFigures { get }

  /// Reads an object, or bytes of it.
  ///
  /// - Parameters:
  ///   - name: its name.
  ///   - range: the bytes wanted, clamped to the object; nil for all.
  ///   - known: the version that the caller has; that version is not sent again.
  ///   - limit: an object (or range) of more bytes than this is refused with `.tooLarge`, before it is read
  ///     into memory.
  /// - Throws: `ObjectStoreError`. An absent object is no error.
  func get(_ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int)
    async throws(ObjectStoreError) -> ObjectReading

  /// Writes an object, durably: it is in the store, whole, when this returns.
  ///
  /// - Returns: `.stored` with its new version; `.refused` if the condition did not hold. A store without
  ///   conditional writes ignores the condition: read the object back where that matters.
  func put(_ name: String, _ bytes: [UInt8], if condition: PutCondition)
    async throws(ObjectStoreError) -> PutOutcome

  /// The objects whose names begin with `prefix`, by name. A listing is never taken to be complete: stores
  /// exist that leave out what was written just before.
  func list(_ prefix: String) async throws(ObjectStoreError) -> [ObjectEntry]

  /// Deletes objects. Absent ones are no error.
  func delete(_ names: [String]) async throws(ObjectStoreError)

  /// The store's clock, in milliseconds since 1970, as stated with its last answer; nil if it has stated
  /// none.
  var clock: UInt64? { get }
}

extension ObjectStore {
  /// Reads a whole object of at most `limit` bytes.
  public func get(_ name: String, limit: Int = 64 << 20) async throws(ObjectStoreError) -> ObjectReading {
    try await get(name, range: nil, unless: nil, limit: limit)
  }
}

/// Names one content of an object: an entity tag, or what a directory has in its place. Opaque.
public struct ObjectVersion: Hashable, Sendable {
  /// The tag, as the store states it.
  public let tag: String

  /// A version with this tag.
  public init(tag: String) { self.tag = tag }
}

/// The answer to `ObjectStore.get`.
public enum ObjectReading: Hashable, Sendable {
  /// The bytes that were asked for.
  case found(ObjectContent)
  /// The object still has the version that the caller knows.
  case unchanged
  /// There is no such object.
  case absent
}

/// An object, or bytes of it.
public struct ObjectContent: Hashable, Sendable {
  /// The bytes that were asked for.
  public var bytes: [UInt8]
  /// The version read; nil if the store states none.
  public var version: ObjectVersion?
  /// When it was written, by the store's clock, in milliseconds since 1970; nil if the store does not say.
  public var modified: UInt64?

  /// All fields.
  public init(bytes: [UInt8], version: ObjectVersion?, modified: UInt64?) {
    (self.bytes, self.version, self.modified) = (bytes, version, modified)
  }
}

/// When `ObjectStore.put` may write.
public enum PutCondition: Hashable, Sendable {
  /// In any case.
  case always
  /// Only if there is no object of that name.
  case absent
  /// Only if the object still has this version.
  case version(ObjectVersion)
}

/// The answer to `ObjectStore.put`.
public enum PutOutcome: Hashable, Sendable {
  /// It is written. The version is nil if the store states none.
  case stored(ObjectVersion?)
  /// The condition did not hold; nothing was written. Also what a store answers to its own retried request,
  /// if the first one had been carried out and its answer was lost.
  case refused
}

/// One object in a listing.
public struct ObjectEntry: Hashable, Sendable {
  /// Its name.
  public var name: String
  /// Its size in bytes.
  public var size: UInt64
  /// Its version; nil if the listing states none.
  public var version: ObjectVersion?
  /// When it was written, by the store's clock, in milliseconds since 1970; nil if the store does not say.
  public var modified: UInt64?

  /// All fields.
  public init(name: String, size: UInt64, version: ObjectVersion?, modified: UInt64?) {
    (self.name, self.size, self.version, self.modified) = (name, size, version, modified)
  }
}

/// An error of an object store.
public struct ObjectStoreError: Error, Sendable, CustomStringConvertible {
  /// The kind of failure.
  public enum Code: String, Hashable, Sendable, CaseIterable {
    /// It cannot be reached, or broke off, and retries did not help.
    case unreachable
    /// It limits the rate of requests, and retries did not help.
    case throttled
    /// It had an internal error (5xx), and retries did not help.
    case failed
    /// The credentials are missing, wrong or expired.
    case credentials
    /// The credentials lack the right to do this.
    case denied
    /// The bucket or the directory does not exist.
    case missing
    /// No space, or the quota is used up.
    case full
    /// The object is larger than the caller's limit.
    case tooLarge = "too-large"
    /// The answer is not one of this protocol, or the file system reports an error.
    case invalid
    /// The caller's task was cancelled.
    case cancelled
  }

  /// The kind of failure.
  public let code: Code
  /// What failed, why, and what to do.
  public let message: String
  /// The HTTP status; nil without one.
  public let status: Int?

  /// An error of this kind.
  public init(_ code: Code, _ message: String, status: Int? = nil) {
    (self.code, self.message, self.status) = (code, message, status)
  }

  /// The message.
  public var description: String { message }

  /// Whether the same call may succeed later without a change of configuration, rights or space.
  public var isTemporary: Bool {
    switch code {
    case .unreachable, .throttled, .failed, .cancelled: true
    case .credentials, .denied, .missing, .full, .tooLarge, .invalid: false
    }
  }
}

/// The kinds of requests, as they are billed.
public enum ObjectOperation: String, Hashable, Sendable, CaseIterable {
  /// Reads.
  case get
  /// Writes, each part of a multipart upload and its beginning and end included.
  case put
  /// Listings, one for each page.
  case list
  /// Deletions.
  case delete
}

/// Requests that an object store has answered, and bytes moved. Retries count each.
public struct ObjectStoreFigures: Hashable, Sendable {
  /// Requests of one operation with one result.
  public struct Kind: Hashable, Sendable {
    /// The operation.
    public let operation: ObjectOperation
    /// The HTTP status; 0 without an answer. A directory gives those that a bucket would give.
    public let status: Int

    /// Both fields.
    public init(_ operation: ObjectOperation, status: Int) {
      (self.operation, self.status) = (operation, status)
    }
  }

  /// The number of requests of each kind.
  public private(set) var requests: [Kind: UInt64] = [:]
  /// Bytes of objects sent and received.
  public private(set) var sentBytes: UInt64 = 0, receivedBytes: UInt64 = 0

  /// Nothing yet.
  public init() {}

  /// Counts a request.
  public mutating func count(
    _ operation: ObjectOperation, status: Int, sent: Int = 0, received: Int = 0
  ) {
    requests[Kind(operation, status: status), default: 0] += 1
    sentBytes += UInt64(sent)
    receivedBytes += UInt64(received)
  }

  /// Counts several requests of one kind.
  mutating func add(_ kind: Kind, _ count: UInt64) {
    if count > 0 { requests[kind, default: 0] += count }
  }

  /// Adds what another one has counted.
  mutating func add(_ other: ObjectStoreFigures) {
    for (kind, count) in other.requests { add(kind, count) }
    addBytes(sent: other.sentBytes, received: other.receivedBytes)
  }

  /// Counts bytes.
  mutating func addBytes(sent: UInt64, received: UInt64) {
    sentBytes += sent
    receivedBytes += received
  }

  /// Requests of one operation, whatever their result.
  public subscript(_ operation: ObjectOperation) -> UInt64 {
    requests.reduce(0) { $0 + ($1.key.operation == operation ? $1.value : 0) }
  }
}

/// The names of objects.
public enum ObjectName {
  /// The most bytes of a name.
  public static let maximumBytes = 200

  /// Whether this is a name that every object store and file system takes: `a-z`, `0-9`, `-`, `.` and `/`, no
  /// empty part, and none that begins with a dot.
  public static func isValid(_ name: String) -> Bool {
    guard !name.isEmpty, name.utf8.count <= maximumBytes else { return false }
    var isAtStart = true
    for byte in name.utf8 {
      switch byte {
      case UInt8(ascii: "/"):
        if isAtStart { return false }
        isAtStart = true
      case UInt8(ascii: "."):
        if isAtStart { return false }
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"):
        isAtStart = false
      default: return false
      }
    }
    return !isAtStart
  }
}

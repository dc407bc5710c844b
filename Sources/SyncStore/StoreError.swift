/// What went wrong with a store, in a form that programs can act on and people can read.
public struct StoreError: Error, Sendable {
  /// The kind of failure. More may be added: a switch over it needs a default.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    /// A stable name, fit for logs and for `--json`.
    public let description: String
    private init(_ description: String) { self.description = description }

    /// The directory holds no store.
    public static let notAStore = Code("not-a-store")
    /// There is a store already.
    public static let alreadyExists = Code("already-exists")
    /// Another process holds the store, or this one does in another mode (F95).
    public static let busy = Code("busy")
    /// A sync failed: nothing more is written until the store is opened again (rule R4).
    public static let poisoned = Code("poisoned")
    /// This copy is a read-only member, or was revoked: a write here would reach no other member.
    public static let notAllowed = Code("not-allowed")
    /// The store, or the file system under it, takes no writes.
    public static let readOnly = Code("read-only")
    /// No space is left (F25).
    public static let diskFull = Code("disk-full")
    /// The operating system refused an operation.
    public static let inputOutput = Code("io")
    /// Bytes are not what was written (F17, F37).
    public static let damaged = Code("damaged")
    /// A file is not what the store would have made: foreign, of the wrong kind, or out of bounds (F40, F45).
    public static let foreignFile = Code("foreign-file")
    /// Others could write the directory, or it belongs to somebody else (F99).
    public static let unsafeDirectory = Code("unsafe-directory")
    /// The file system is not one that a store can rely on: a network file system (F98).
    public static let unsafeFileSystem = Code("unsafe-file-system")
    /// The store was written by a newer program (F100).
    public static let newerFormat = Code("newer-format")
    /// A key is empty, too long or reserved.
    public static let invalidKey = Code("invalid-key")
    /// A value, a transaction or an argument is out of bounds.
    public static let outOfBounds = Code("out-of-bounds")
    /// The value has another type.
    public static let wrongType = Code("wrong-type")
    /// The bytes of a value are not what the format of its type says: something else wrote them.
    public static let malformedValue = Code("malformed-value")
    /// The collection has an element of this identifier already.
    public static let duplicateIdentifier = Code("duplicate-identifier")
    /// The value is in the blob tier and its bytes have not arrived here yet.
    public static let blobUnavailable = Code("blob-unavailable")
    /// The clock stands where no stamp can follow, or what was stamped ahead of it cannot be taken back.
    public static let clock = Code("clock")
    /// A peer, or a cursor, knows more of this copy than it does itself: it was rolled back (rule R9).
    public static let rolledBack = Code("rolled-back")
    /// The copy waits for the full state of another one, and cannot give its own.
    public static let unsettled = Code("unsettled")
    /// A reader took so long that what it read could not be kept any more (F93).
    public static let snapshotEnded = Code("snapshot-ended")
    /// Deletes behind the position that changes were to be read from are not kept any more.
    public static let changesLost = Code("changes-lost")
    /// What a session took this copy to be does not hold any more: another one is to be begun. Only sessions meet it.
    package static let overtaken = Code("overtaken")
    /// The store is encrypted, and no passphrase was given.
    public static let keyRequired = Code("key-required")
    /// The passphrase is not the store's.
    public static let wrongKey = Code("wrong-key")
    /// A passphrase was given for a store that is not encrypted.
    public static let notEncrypted = Code("not-encrypted")
    /// The task was cancelled before the work was begun, or between two steps of it.
    public static let cancelled = Code("cancelled")
    /// The store was closed.
    public static let closed = Code("closed")
    /// The store was opened before this process was forked (F97).
    public static let forked = Code("forked")
  }

  /// The kind of failure.
  public let code: Code
  /// What failed, why, and what to do about it.
  public let message: String
  /// The file or directory it happened at, if any.
  public let path: String?
  /// The operating system's error number; 0 if it had no part in it.
  public let errno: Int32

  /// Runs what can fail as the store does alone, though its type does not say so.
  static func only<Result>(_ body: () throws -> Result) throws(StoreError) -> Result {
    do { return try body() } catch {
      guard let error = error as? StoreError else { preconditionFailure("only the store fails: \(error)") }
      throw error
    }
  }

  /// An error of kind `code`.
  public init(_ code: Code, _ message: String, path: String? = nil, errno: Int32 = 0) {
    self.code = code
    self.message = message
    self.path = path.map(Self.stableName)
    self.errno = errno
  }
}

extension StoreError {
  /// Files of a store that are made under another name and renamed.
  private static let replaced: StringSet = [
    "STORE", "control", "index", "ledger", "ring", "device.pem", "group", "next", "reserve",
    "reserve.compacted", "reserve.records",
  ]

  /// The name by which people know the file at `path`: that which it gets when it is complete. What they could not find
  /// under a temporary name when they look would be of no use to them.
  static func stableName(_ path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
    let (directory, name) = (path[..<slash], path[path.utf8.index(after: slash)...])
    if name.hasSuffix(".new"), replaced.contains(String(name.dropLast(4))) { return String(path.dropLast(4)) }
    if directory.hasSuffix("/partial"), name.hasPrefix("new-") {
      return String(Substring(directory.utf8.dropLast("/partial".utf8.count)))
    }
    // A segment that is being made ready, for the writer or by compaction.
    if directory.hasSuffix("/journal"), name == "next" || name.hasPrefix("next.") { return String(directory) }
    guard name.hasSuffix(".part") else { return path }
    // `BlobFiles.temporary`: the file's own name, then what `BlobFiles.uniqueName` gives.
    let stem = name.utf8.dropLast(".part".utf8.count)
    guard let dot = stem.lastIndex(of: UInt8(ascii: ".")),
      BlobFiles.isUniqueName(stem[stem.index(after: dot)...])
    else { return path }
    return "\(directory)/\(Substring(stem[..<dot]))"
  }

  /// Was there no descriptor left (F33)? What was to be opened was not touched, so that nothing is lost where that is tried again.
  var isOutOfDescriptors: Bool { SystemCall.isOutOfDescriptors(errno) }
}

extension StoreError: CustomStringConvertible {
  /// `path: message`.
  public var description: String { path.map { "\($0): \(message)" } ?? message }
}

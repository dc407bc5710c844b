/// An error of a store, with a code for programs and a message for people.
public struct StoreError: Error, Sendable {
  /// The kind of failure. More may be added: a switch over it needs a default.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    /// A stable name for logs and `--json`.
    public let description: String
    private init(_ description: String) { self.description = description }

    /// The directory holds no store.
    public static let notAStore = Code("not-a-store")
    /// A store already exists there.
    public static let alreadyExists = Code("already-exists")
    /// Another process has the store open, or this one has it open in another mode (F95).
    public static let busy = Code("busy")
    /// A sync failed: nothing more is written until the store is opened again (rule R4).
    public static let poisoned = Code("poisoned")
    /// This copy is a read-only member, or was revoked: a write here would reach no other member.
    public static let notAllowed = Code("not-allowed")
    /// The store, or its file system, is read-only.
    public static let readOnly = Code("read-only")
    /// No space is left (F25).
    public static let diskFull = Code("disk-full")
    /// The operating system refused an operation.
    public static let inputOutput = Code("io")
    /// Bytes differ from what was written (F17, F37).
    public static let damaged = Code("damaged")
    /// A file that this store did not write: foreign, of the wrong kind, or out of bounds (F40, F45).
    public static let foreignFile = Code("foreign-file")
    /// Other users could write to the directory, or own it (F99).
    public static let unsafeDirectory = Code("unsafe-directory")
    /// A file system that a store cannot rely on: a network file system (F98).
    public static let unsafeFileSystem = Code("unsafe-file-system")
    /// The store was written by a newer program (F100).
    public static let newerFormat = Code("newer-format")
    /// A key is empty, too long or reserved.
    public static let invalidKey = Code("invalid-key")
    /// A value, a transaction or an argument is out of bounds.
    public static let outOfBounds = Code("out-of-bounds")
    /// The value has another type.
    public static let wrongType = Code("wrong-type")
    /// The bytes of a value do not match the format of its type: another program wrote them.
    public static let malformedValue = Code("malformed-value")
    /// The collection already has an element with this identifier.
    public static let duplicateIdentifier = Code("duplicate-identifier")
    /// The value is in the blob tier and its bytes have not arrived here yet.
    public static let blobUnavailable = Code("blob-unavailable")
    /// The clock is at a time after which no stamp can follow, or records stamped ahead of it cannot be taken
    /// back.
    public static let clock = Code("clock")
    /// A peer or a cursor knows more of this copy than the copy itself: it was rolled back (rule R9).
    public static let rolledBack = Code("rolled-back")
    /// The copy waits for another one's full state, and cannot send its own.
    public static let unsettled = Code("unsettled")
    /// A reader took so long that its snapshot could not be kept any longer (F93).
    public static let snapshotEnded = Code("snapshot-ended")
    /// Deletes after the requested start position of changes are no longer kept.
    public static let changesLost = Code("changes-lost")
    /// The replica state that a session expects is stale: begin a new session. Only sessions meet it.
    package static let overtaken = Code("overtaken")
    /// The store is encrypted, and no passphrase was given.
    public static let keyRequired = Code("key-required")
    /// The passphrase is wrong.
    public static let wrongKey = Code("wrong-key")
    /// A passphrase was given for a store that is not encrypted.
    public static let notEncrypted = Code("not-encrypted")
    /// The task was cancelled before the work began, or between two steps of it.
    public static let cancelled = Code("cancelled")
    /// The store was closed.
    public static let closed = Code("closed")
    /// The store was opened before this process was forked (F97).
    public static let forked = Code("forked")
  }

  /// The kind of failure.
  public let code: Code
  /// The failure, its cause, and the remedy.
  public let message: String
  /// The file or directory concerned, if any.
  public let path: String?
  /// The operating system's error number; 0 for other errors.
  public let errno: Int32

  /// Narrows an untyped `throws` to `StoreError` for code that can only fail with that.
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
  /// Files of a store that are written under a temporary name and renamed.
  private static let replaced: StringSet = [
    "STORE", "control", "index", "ledger", "ring", "device.pem", "group", "next", "reserve",
    "reserve.compacted", "reserve.records",
  ]

  /// The final name of the file at `path`: a temporary name in a message would be of no use, since the file
  /// no longer has it when people look.
  static func stableName(_ path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
    let (directory, name) = (path[..<slash], path[path.utf8.index(after: slash)...])
    if name.hasSuffix(".new"), replaced.contains(String(name.dropLast(4))) { return String(path.dropLast(4)) }
    if directory.hasSuffix("/partial"), name.hasPrefix("new-") {
      return String(Substring(directory.utf8.dropLast("/partial".utf8.count)))
    }
    // A segment being prepared, for the writer or by compaction.
    if directory.hasSuffix("/journal"), name == "next" || name.hasPrefix("next.") { return String(directory) }
    guard name.hasSuffix(".part") else { return path }
    // `BlobFiles.temporary`: the file's own name, then the suffix of `BlobFiles.uniqueName`.
    let stem = name.utf8.dropLast(".part".utf8.count)
    guard let dot = stem.lastIndex(of: UInt8(ascii: ".")),
      isUniqueName(stem[stem.index(after: dot)...])
    else { return path }
    return "\(directory)/\(Substring(stem[..<dot]))"
  }

  /// Whether `text` has the form of `BlobFiles.uniqueName`: two decimal numbers and a hexadecimal one.
  private static func isUniqueName(_ text: Substring.UTF8View) -> Bool {
    let parts = text.split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
    guard parts.count == 3, parts.allSatisfy({ !$0.isEmpty }) else { return false }
    let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
    let letters = UInt8(ascii: "a")...UInt8(ascii: "f")
    return parts[0...1].joined().allSatisfy { digits.contains($0) }
      && parts[2].allSatisfy { digits.contains($0) || letters.contains($0) }
  }
}

extension StoreError: CustomStringConvertible {
  /// `path: message`.
  public var description: String { path.map { "\($0): \(message)" } ?? message }
}

public import SyncStore

/// An error between two copies, in a form for programs and for people.
public struct ReplicationError: Error, Sendable {
  /// The kind of failure. More may be added: a switch over it needs a default.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    /// A stable name, for logs and for `--json`.
    public let description: String
    private init(_ description: String) { self.description = description }

    /// The other side is not a member, or has presented a key other than the pinned one (F75).
    public static let notAMember = Code("not-a-member")
    /// A member lacks the right to do this: the other side, or this copy itself (F81).
    public static let notAllowed = Code("not-allowed")
    /// The invitation is unknown, used, expired or wrong (F87).
    public static let invalidInvitation = Code("invalid-invitation")
    /// The two clocks differ by more than the drift limit (F49).
    public static let clockSkew = Code("clock-skew")
    /// The other side is a copy of another store.
    public static let otherStore = Code("other-store")
    /// The other side supports no protocol version that this side supports.
    public static let incompatible = Code("incompatible")
    /// The other side sent what the protocol does not allow (F78–F80).
    public static let protocolViolation = Code("protocol-violation")
    /// No connection could be made, or it broke.
    public static let network = Code("network")
    /// The other side did not answer in time.
    public static let timeout = Code("timeout")
    /// The two copies are in step, but their digests differ (F61).
    public static let digestsDiffer = Code("digests-differ")
    /// The other side cannot give what is needed at the moment; another member may.
    public static let unavailable = Code("unavailable")
    /// TLS, or a function of the cryptographic library, failed.
    public static let cryptography = Code("cryptography")
    /// The own store failed; `store` has its error.
    public static let store = Code("store")
  }

  /// The kind of failure.
  public let code: Code
  /// The failed operation, the cause, and the remedy.
  public let message: String
  /// The own store's error, if it is the cause.
  public let store: StoreError?

  /// An error of kind `code`.
  public init(_ code: Code, _ message: String) {
    self.code = code
    self.message = message
    store = nil
  }

  /// An error of the own store.
  public init(_ error: StoreError) {
    code = .store
    // The other side's disk may be full as well: states whose it is.
    message = error.code == .diskFull ? "this copy's disk is full: \(error.description)" : error.description
    store = error
  }
}

extension ReplicationError: CustomStringConvertible {
  /// The message.
  public var description: String { message }
}

public import SyncStore

/// What went wrong between two copies, in a form that programs can act on and people can read.
public struct ReplicationError: Error, Sendable {
  /// The kind of failure. More may be added: a switch over it needs a default.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    /// A stable name, fit for logs and for `--json`.
    public let description: String
    private init(_ description: String) { self.description = description }

    /// The other side is not a member, or has shown another key than the one that is pinned (F75).
    public static let notAMember = Code("not-a-member")
    /// A member has the right to be known, but not to do this: the other side, or this copy itself (F81).
    public static let notAllowed = Code("not-allowed")
    /// The invitation is unknown, used, expired or wrong (F87).
    public static let invalidInvitation = Code("invalid-invitation")
    /// The two clocks differ by more than the drift limit (F49).
    public static let clockSkew = Code("clock-skew")
    /// The other side is a copy of another store.
    public static let otherStore = Code("other-store")
    /// The other side speaks no version that we speak.
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
    /// The own store could not do its part; `store` has what it said.
    public static let store = Code("store")
  }

  /// The kind of failure.
  public let code: Code
  /// What failed, why, and what to do about it.
  public let message: String
  /// The own store's error, if that is what ended it.
  public let store: StoreError?

  /// An error of kind `code`.
  public init(_ code: Code, _ message: String) {
    self.code = code
    self.message = message
    store = nil
  }

  /// The own store failed.
  public init(_ error: StoreError) {
    code = .store
    // The other side's disk may be full as well: say whose it is.
    message = error.code == .diskFull ? "this copy's disk is full: \(error.description)" : error.description
    store = error
  }
}

extension ReplicationError: CustomStringConvertible {
  /// The message.
  public var description: String { message }
}

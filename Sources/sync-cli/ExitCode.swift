private import Replication
private import SyncStore

/// The exit status of the process. Scripts depend on these numbers.
enum ExitCode: Int32, CaseIterable {
  case done = 0
  /// A key or another item was not there, or two things that should be equal are not.
  case notFound = 1
  case usage = 2
  /// Authentication, rights, not a member, clock.
  case refused = 3
  case network = 4
  case damaged = 5
  case busy = 6
  /// Disk full or I/O.
  case inputOutput = 7
  case newerFormat = 8
  case bug = 70

  /// A few words for the help.
  var meaning: String {
    switch self {
    case .done: "done"
    case .notFound: "not found or different"
    case .usage: "usage"
    case .refused: "refused"
    case .network: "network"
    case .damaged: "damaged data"
    case .busy: "busy"
    case .inputOutput: "disk full or I/O"
    case .newerFormat: "newer format"
    case .bug: "a bug"
    }
  }

  /// Determines the exit code of a command over many items: that of the failure with the greatest severity.
  ///
  /// Irreversible failures rank highest, those that a retry may cure lowest.
  var severity: Int {
    switch self {
    case .done: 0
    case .notFound: 1
    case .usage: 2
    case .busy: 3
    case .network: 4
    case .refused: 5
    case .newerFormat: 6
    case .inputOutput: 7
    case .damaged: 8
    case .bug: 9
    }
  }
}

/// The error that ends a command: one line for people, an exit code for scripts.
struct Failure: Error {
  let code: ExitCode
  /// "what failed: why: what to do".
  let message: String
  /// Causes that are no fault of an item.
  enum Cause { case ordinary, brokenPipe, interruption }
  private let cause: Cause

  /// A pipe lost its reader: if it is standard output, the process ends like others on a broken pipe, without
  /// a message.
  var isBrokenPipe: Bool { cause == .brokenPipe }
  /// Whether every later item would meet it, too.
  var endsCommand: Bool { cause != .ordinary }

  init(_ code: ExitCode, _ message: String, cause: Cause = .ordinary) {
    (self.code, self.message, self.cause) = (code, message, cause)
  }

  /// The end of a command that a key on the terminal interrupted.
  static let interrupted = Failure(
    .refused, "interrupted by Ctrl-C: what was done before is kept: run it again for the rest",
    cause: .interruption)

  /// Converts any error into the form in which commands end.
  init(_ error: any Error) {
    switch error {
    case let failure as Failure: self = failure
    case let error as StoreError: self.init(Self.exitCode(of: error), error.description)
    case let error as ReplicationError:
      if let cause = error.store {
        self.init(Self.exitCode(of: cause), error.description)
        return
      }
      self.init(Self.exitCode(of: error), error.description)
    default: self.init(.bug, "\(error): this should not happen: please report it")
    }
  }

  /// The failure with all three parts. Errors of a library that name no file have only why and what to do;
  /// the command is used as what failed.
  func named(_ command: String) -> Failure {
    let parts = message.split(separator: ": ", omittingEmptySubsequences: true).count
    guard parts < 3, !message.hasPrefix(command) else { return self }
    return Failure(code, "\(command): \(message)", cause: cause)
  }

  private static func exitCode(of error: StoreError) -> ExitCode {
    switch error.code {
    case .notAStore, .alreadyExists, .invalidKey, .outOfBounds, .wrongType, .notEncrypted,
      .duplicateIdentifier:
      .usage
    case .unsafeDirectory, .unsafeFileSystem, .clock, .keyRequired, .wrongKey, .notAllowed: .refused
    // Another copy can help, now or on a retry.
    case .blobUnavailable, .unsettled, .rolledBack: .network
    case .changesLost: .notFound
    case .damaged, .foreignFile, .malformedValue: .damaged
    case .busy, .snapshotEnded, .closed: .busy
    case .poisoned, .readOnly, .diskFull, .inputOutput: .inputOutput
    case .newerFormat: .newerFormat
    default: .bug
    }
  }

  private static func exitCode(of error: ReplicationError) -> ExitCode {
    switch error.code {
    case .notAMember, .notAllowed, .invalidInvitation, .clockSkew, .otherStore: .refused
    case .incompatible: .newerFormat
    case .digestsDiffer: .notFound
    case .protocolViolation, .network, .timeout, .unavailable: .network
    // The keys of the device or group are missing or invalid: data from others never causes this.
    case .cryptography: .damaged
    default: .bug
    }
  }
}

private import Replication
private import SyncStore

/// What the process answers with. Scripts depend on these numbers.
enum ExitCode: Int32 {
  case done = 0
  /// A key or a thing was not there, or two things that should be equal are not.
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

  /// Which of several failures decides how a command over many items ends: the one with the greatest severity. What
  /// cannot be undone comes first, what another attempt may mend last.
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

/// Why a command ends without having done its work: one line for people, one number for scripts.
struct Failure: Error {
  let code: ExitCode
  /// "what failed: why: what to do".
  let message: String
  /// The reader of standard output has gone: the process ends as others do then, without a word.
  let isBrokenPipe: Bool

  init(_ code: ExitCode, _ message: String, isBrokenPipe: Bool = false) {
    (self.code, self.message, self.isBrokenPipe) = (code, message, isBrokenPipe)
  }

  /// Any error in the form that a command ends with.
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

  /// The same failure with all three parts: a library that names no file says why and what to do; what failed is the
  /// command.
  func named(_ command: String) -> Failure {
    let parts = message.split(separator: ": ", omittingEmptySubsequences: true).count
    guard parts < 3, !message.hasPrefix(command) else { return self }
    return Failure(code, "\(command): \(message)", isBrokenPipe: isBrokenPipe)
  }

  private static func exitCode(of error: StoreError) -> ExitCode {
    switch error.code {
    case .notAStore, .alreadyExists, .invalidKey, .outOfBounds, .wrongType, .notEncrypted,
      .duplicateIdentifier:
      .usage
    case .unsafeDirectory, .unsafeFileSystem, .clock, .keyRequired, .wrongKey, .notAllowed: .refused
    // Another copy can help, now or when it is asked again.
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
    // The device's or the group's keys are missing, or no keys: what others send never is that.
    case .cryptography: .damaged
    default: .bug
    }
  }
}

import SyncStore

/// The failures of single items in a command over many: files, keys, lines, peers.
///
/// The command processes the remaining items. Each failure is reported on standard error when it happens, up
/// to `named` of them; the command then ends with the exit code of the worst (`ExitCode.severity`). With
/// `--strict` the first failure is thrown and ends the command.
///
/// Errors that every later item would meet too (a poisoned store, a closed snapshot, a broken pipe) are never
/// counted here: callers rethrow them.
struct ItemFailures {
  /// The option that makes the first failure end the command.
  static let strict = Option("strict", "end at the first failure instead of doing the rest")
  /// Maximum number of reported failures; further ones are only counted.
  static let named = 1000

  /// How the failures of a command are handled.
  struct Policy: OptionSet {
    let rawValue: UInt8

    /// The first failure is thrown and ends the command.
    static let stopAtFirst = Self(rawValue: 1)
    /// The command has a single item: its failure is the command's own, without a summary.
    static let singleItem = Self(rawValue: 2)
  }

  private let command: String
  private let policy: Policy
  private(set) var count = 0
  private var worst: Failure?
  /// Damage can be reported twice: when a value is read, and as a possible loss of the scan.
  private var damagedKeys: Set<[UInt8]> = []

  /// Creates an empty list. `isAlone`: the command has a single item.
  init(_ invocation: Invocation, isAlone: Bool = false) {
    var policy: Policy = isAlone ? .singleItem : []
    if invocation.has(Self.strict.name) { policy.insert(.stopAtFirst) }
    self.init(command: invocation.command.name, policy: policy)
  }

  /// Creates an empty list for a command of that name.
  init(command: String, policy: Policy = []) {
    (self.command, self.policy) = (command, policy)
  }

  /// Whether the first failure ends the command.
  var isStrict: Bool { policy.contains(.stopAtFirst) }
  private var isAlone: Bool { policy.contains(.singleItem) }

  /// Reports a failure, or throws it if the command is strict.
  mutating func record(_ failure: Failure) throws(Failure) {
    guard !isStrict, !failure.endsCommand else { throw failure }
    count += 1
    if worst.map({ $0.code.severity < failure.code.severity }) ?? true { worst = failure }
    if !isAlone, count <= Self.named { Diagnostics.report(failure.message, as: .error) }
  }

  /// Reports the failure of a key. Errors that concern more than this key are thrown.
  mutating func record(_ key: Key, _ error: StoreError) throws {
    guard error.concernsOneItem else { throw error }
    if error.code == .damaged, !damagedKeys.insert(key.bytes).inserted { return }
    try record(Failure(StoreError(error, to: "\(command) \(Text.printable(key.bytes))")))
  }

  /// Reports keys that a scan may have missed. For a listing that ended at a limit, only those up to `last`
  /// count.
  mutating func record(_ losses: [PossibleLoss], upTo last: Key? = nil) throws {
    for loss in losses {
      if let key = loss.key, let last, last < key { continue }
      // A loss without a key may concern any number of keys.
      guard damagedKeys.insert(loss.key?.bytes ?? []).inserted else { continue }
      let name = loss.key.map { " \(Text.printable($0.bytes))" } ?? ""
      let what = loss.key == nil ? "some keys may be missing: " : ""
      try record(Failure(StoreError(loss.error, to: "\(command)\(name): \(what)")))
    }
  }

  /// Throws the code of the worst failure, if there was any.
  func check() throws(Failure) {
    guard let worst else { return }
    guard !isAlone || count > 1 else { throw worst }
    let above = count > Self.named ? "the first \(Self.named) are named above" : "named above"
    let advice =
      worst.code == .damaged
      ? "run \"sync-cli verify --repair\", and then this again"
      : "see what each line says, then run this again"
    throw Failure(
      worst.code, "\(command): not all was done: \(Text.count(count, noun: "failure")), \(above): \(advice)")
  }
}

extension StoreError {
  /// Whether the next item may succeed although this one failed.
  var concernsOneItem: Bool {
    [
      .damaged, .malformedValue, .foreignFile, .blobUnavailable, .invalidKey, .outOfBounds, .wrongType,
      .inputOutput, .diskFull, .readOnly,
    ].contains(code)
  }

  /// The same error, prefixed with what failed.
  init(_ error: StoreError, to what: String) {
    let separator = what.hasSuffix(" ") ? "" : ": "
    self.init(error.code, "\(what)\(separator)\(error.description)", errno: error.errno)
  }
}

import Replication
import SyncStore

/// `policy` and `trim`: which large values are kept here; also fetches missing ones.
enum TierCommands {
  private static let limitOptions = [
    Option("max-bytes", value: "N", "keep at most so many bytes of large values: 500M, 20G …"),
    Option("max-count", value: "N", "keep at most so many"),
    Option("max-age", value: "SPAN", "evict values not used for 12h, 30d …"),
    Option("min-free", value: "N", "let large values leave while the file system has fewer bytes free"),
    Option("copies", value: "N", "only what so many other members confirm to hold leaves (default: 1)"),
  ]

  // MARK: policy

  static let policy = Command(
    "policy", "show or set which large values this copy takes and keeps",
    operands: [Operand("TAKE", .optional)],
    options: [
      Option("eager-prefix", value: "P", repeats: true, "take those of keys that begin with P, of any size")
    ] + limitOptions + [
      Option("trim-interval", value: "SPAN", "how often a daemon looks at the limits (default: 60s)"),
      Option("unlimited", "take all limits away"),
    ],
    notes: """
      TAKE is "eager" (all large values come with their records: the default), "lazy" (none do: each is fetched when it is read),
      or a size such as 1M: those up to it come. What was put here stays until the limits make it leave. Without TAKE and options
      it shows what is set. It is kept in the store, for the daemon and all commands.
      """
  ) { invocation, output in
    let take = try invocation.operands.first.map { try Self.policy($0, invocation) }
    let prefixes = invocation.values["eager-prefix"].map { $0.map(\.bytes) }
    let limitsChange =
      invocation.has("unlimited") || invocation.has("trim-interval") || limitsAreGiven(invocation)
    let changes = take != nil || prefixes != nil || limitsChange
    return try invocation.withStore(toWrite: changes) { store in
      if limitsChange {
        var limits = invocation.has("unlimited") ? BlobLimits() : try store.blobLimits
        try Self.read(&limits, invocation)
        if let span = try invocation.milliseconds("trim-interval") {
          limits.trimSeconds = UInt32(clamping: max(1, span / 1000))
        }
        try store.setBlobLimits(limits)
      }
      if take != nil || prefixes != nil {
        var policy = try take ?? store.blobPolicy
        // If all values are taken, prefixes have no effect: switch to the lazy policy.
        if prefixes != nil, take == nil, policy.takesAll { policy = .lazy }
        if let prefixes { policy.eagerPrefixes = prefixes }
        try store.setBlobPolicy(policy)
      }
      let (policy, limits) = (try store.blobPolicy, try store.blobLimits)
      try invocation.report(text(policy, limits), json: json(policy, limits), output)
      return .done
    }
  }.printing(JSONReference.policy)

  private static func policy(_ take: Argument, _ invocation: Invocation) throws -> BlobPolicy {
    switch take.text {
    case "eager": return .eager
    case "lazy": return .lazy
    default:
      guard let bytes = Text.bytes(take.text) else {
        throw invocation.usage(
          "\"\(take.shown)\"", reason: "no policy", advice: "write eager, lazy, or a size such as 1M")
      }
      return .eager(upTo: bytes)
    }
  }

  private static func limitsAreGiven(_ invocation: Invocation) -> Bool {
    limitOptions.contains { invocation.has($0.name) }
  }

  private static func read(_ limits: inout BlobLimits, _ invocation: Invocation) throws {
    func bytes(_ option: String) throws -> UInt64? {
      guard let argument = invocation.value(option) else { return nil }
      guard let bytes = Text.bytes(argument.text) else {
        throw invocation.usage(
          "--\(option) \(argument.shown)", reason: "no size", advice: "write 500M, 20G or bytes")
      }
      return bytes
    }
    if let most = try bytes("max-bytes") { limits.bytes = most }
    if let most = try invocation.integer("max-count", in: 0...UInt64.max) { limits.count = most }
    if let span = try invocation.milliseconds("max-age") { limits.ageMilliseconds = span }
    if let least = try bytes("min-free") { limits.freeDiskBytes = least }
    if let copies = try invocation.integer("copies", in: 1...Limits.blobCopies) { limits.copies = copies }
  }

  static func text(_ policy: BlobPolicy, _ limits: BlobLimits) -> String {
    let taken =
      policy.takesAll
      ? "all large values"
      : policy.eagerBytes > 0 ? "large values up to \(Text.size(policy.eagerBytes))" : "no large values"
    let prefixes =
      policy.eagerPrefixes.isEmpty
      ? ""
      : ", and those of keys that begin with \(policy.eagerPrefixes.map { "\"\(Text.printable($0))\"" }.joined(separator: ", "))"
    var bounds: [String] = []
    if limits.bytes != .max { bounds.append("at most \(Text.size(limits.bytes))") }
    if limits.count != .max { bounds.append("at most \(limits.count)") }
    if limits.ageMilliseconds != .max {
      bounds.append("unused for \(Text.duration(seconds: Double(limits.ageMilliseconds) / 1000)) at most")
    }
    if limits.freeDiskBytes > 0 { bounds.append("\(Text.size(limits.freeDiskBytes)) of the disk free") }
    let kept =
      bounds.isEmpty
      ? "without limits"
      : bounds.joined(separator: ", ")
        + "; what leaves is held by \(Text.count(limits.copies, noun: "other member"))"
    return "takes \(taken)\(prefixes)\nkeeps them \(kept)"
  }

  static func json(_ policy: BlobPolicy, _ limits: BlobLimits) -> JSON {
    func bound(_ value: UInt64) -> JSON { value == .max ? .null : .integer(value) }
    return [
      "eager_bytes": bound(policy.eagerBytes),
      "eager_prefixes": .array(policy.eagerPrefixes.map(KeyLine.prefix)),
      "max_bytes": bound(limits.bytes), "max_count": bound(limits.count),
      "max_age_ms": bound(limits.ageMilliseconds), "min_free_bytes": .integer(limits.freeDiskBytes),
      "copies": .integer(limits.copies), "trim_seconds": .integer(UInt64(limits.trimSeconds)),
    ]
  }

  // MARK: trim

  static let trim = Command(
    "trim", "give all space back that can be had",
    options: limitOptions + [
      Option("dry-run", "only estimate what could be given back, without asking the members"),
      ItemFailures.strict,
    ],
    notes: """
      Compacts the journal, and removes blobs that nothing has referred to for an hour. Then, if there are limits (those of
      "sync-cli policy", or those given here), the least recently used large values leave, but only those that other members confirm
      to hold: peers are connected to for that. What has left is fetched again when it is read. Ends with 1 if the limits do
      not hold after that. If the journal cannot be compacted, that is named, and large values leave all the same, unless
      --strict is given. Others go on reading and writing meanwhile.
      """
  ) { invocation, output in
    try invocation.withStore { store in
      if invocation.has("dry-run") { return try estimate(store, invocation, output) }
      var failures = ItemFailures(invocation)
      var gained: UInt64 = 0
      do { gained = UInt64(try store.trim()) } catch let error as StoreError where error.concernsOneItem {
        try failures.record(Failure(StoreError(error, to: "trim")))
      }
      let limits = try trimLimits(store, invocation)
      guard limits.hasLimits else {
        try invocation.report(
          "\(Text.size(gained)) given back", json: ["gained_bytes": .integer(gained)], output)
        try failures.check()
        return .done
      }
      let report = try evict(limits, store: store, invocation: invocation)
      try invocation.report(
        "\(Text.size(gained + report.evictedBytes)) given back; \(text(report))",
        json: json(report).with("gained_bytes", .integer(gained + report.evictedBytes)), output)
      try failures.check()
      return report.holds ? .done : .notFound
    }
  }.printing(JSONReference.trim)

  /// The limits of the policy, or those given instead.
  private static func trimLimits(_ store: Store, _ invocation: Invocation) throws -> BlobLimits {
    var limits = limitsAreGiven(invocation) ? BlobLimits() : try store.blobLimits
    if limitsAreGiven(invocation) { limits.copies = try store.blobLimits.copies }
    try read(&limits, invocation)
    return limits
  }

  private static func estimate(
    _ store: Store, _ invocation: Invocation, _ output: Output
  ) throws -> ExitCode {
    let estimate = try store.trimEstimate(to: try trimLimits(store, invocation))
    let due =
      estimate.dueValues == 0
      ? ""
      : "; \(Text.count(estimate.dueValues, noun: "large value")) (\(Text.size(estimate.dueBytes))) would leave if members confirm to hold them"
    try invocation.report(
      "about \(Text.size(estimate.journalBytes)) of the journal would be given back\(due)",
      json: [
        "journal_bytes": .integer(estimate.journalBytes), "due": .integer(estimate.dueValues),
        "due_bytes": .integer(estimate.dueBytes), "dry_run": true,
      ], output)
    return .done
  }

  private static func evict(
    _ limits: BlobLimits, store: Store, invocation: Invocation
  ) throws -> BlobTrimReport {
    let bar = Locked(Progress("trim", totalBytes: 0, enabled: invocation.showsProgress))
    defer { bar.withLock { $0.finish() } }
    let node = try Node(store: store, configuration: invocation.nodeConfiguration)
    defer { try? blocking { await node.stop() } }
    return try blocking {
      try await node.trimBlobs(to: limits) { progress in
        bar.withLock { bar in
          bar.show { _ in
            let seen = "trim: \(progress.done) of \(progress.total)"
            let left = "\(Text.count(progress.evicted, noun: "value")) removed"
            return [
              "\(seen) looked at, \(left), \(Text.size(progress.evictedBytes))", "\(seen), \(left)", seen,
              "\(progress.done) of \(progress.total)",
            ]
          }
        }
      }
    }
  }

  /// The result of an eviction pass.
  static func text(_ report: BlobTrimReport) -> String {
    var parts = [
      "\(Text.count(report.evicted, noun: "large value")) left (\(Text.size(report.evictedBytes)))"
    ]
    if report.tooFewHolders > 0 {
      parts.append(
        "\(report.tooFewHolders) stayed (\(Text.size(report.tooFewHoldersBytes))): too few members confirm to hold them"
      )
    }
    if report.kept > 0 {
      parts.append(
        "\(report.kept) stayed (\(Text.size(report.keptBytes))): this copy alone needs them, or they are new")
    }
    if report.used > 0 { parts.append("\(report.used) were used meanwhile") }
    return parts.joined(separator: "; ") + (report.holds ? "" : "; the limits are exceeded")
  }

  /// The result of an eviction pass as JSON.
  static func json(_ report: BlobTrimReport) -> JSON {
    [
      "evicted": .integer(report.evicted), "evicted_bytes": .integer(report.evictedBytes),
      "too_few_holders": .integer(report.tooFewHolders),
      "too_few_holders_bytes": .integer(report.tooFewHoldersBytes), "kept": .integer(report.kept),
      "kept_bytes": .integer(report.keptBytes), "used": .integer(report.used), "holds": .bool(report.holds),
    ]
  }

  // MARK: Fetching

  /// Opens the store and runs `body` with all values readable: missing large values are fetched from the
  /// peers on read.
  static func withAllValues<Result>(_ invocation: Invocation, _ body: (Store) throws -> Result) throws
    -> Result
  {
    var opening = try invocation.opening(toWrite: false)
    let whole = try invocation.withStore(opening) { store in
      try store.absentValues() == AbsentValues() ? try body(store) : nil as Result?
    }
    if let whole { return whole }
    opening.configuration.mode = .shared
    return try invocation.withStore(opening) { store in
      // A store without keys of its own has no peers: the read reports that.
      let node = try? Node(store: store, configuration: invocation.nodeConfiguration)
      defer { if let node { try? blocking { await node.stop() } } }
      return try body(store)
    }
  }

  /// The error for a value that could not be fetched, with its key.
  static func unfetched(_ key: Key, invocation: Invocation, error: StoreError) -> Failure {
    Failure(
      .network,
      "\(invocation.command.name) \(Text.printable(key.bytes)): \(error.message): "
        + "start the daemon of a member that has it, or name where it is by \"sync-cli peer add\"")
  }

  /// Runs `body`, which reads the value of a key. If the value is not here, fetches it from the peers and
  /// runs `body` again.
  static func fetching<Result>(
    _ key: Key, invocation: Invocation, _ body: () throws -> Result
  ) throws -> Result {
    do { return try body() } catch let error as StoreError where error.code == .blobUnavailable {
      try fetch(key, invocation: invocation, reason: error)
      return try body()
    }
  }

  private static func fetch(_ key: Key, invocation: Invocation, reason: StoreError) throws {
    let bar = Locked(Progress(invocation.command.name, totalBytes: 0, enabled: invocation.showsProgress))
    defer { bar.withLock { $0.finish() } }
    try invocation.withStore { store in
      do {
        let node = try Node(store: store, configuration: invocation.nodeConfiguration)
        defer { try? blocking { await node.stop() } }
        _ = try blocking {
          try await node.fetch(key) { progress in
            bar.withLock { $0.update(bytes: progress.bytes, of: progress.total, Text.size(progress.total)) }
          }
        }
      } catch let error as ReplicationError where error.store == nil {
        throw Failure(
          .network,
          "\(invocation.command.name) \(Text.printable(key.bytes)): \(reason.message); tried now: \(error.message): "
            + "start the daemon of a member that has it, or name where it is by \"sync-cli peer add\"")
      }
    }
  }
}

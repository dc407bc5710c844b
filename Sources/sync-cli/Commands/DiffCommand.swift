import Replication
import SyncStore

/// `diff`, and the dry runs of `push`, `pull` and `sync`: what two copies lack of each other.
enum DiffCommand {
  static let command = Command(
    "diff", "show what differs between this copy and a peer, moving nothing",
    operands: [Operand("PEER"), Operand("PREFIX", .optional)],
    options: [Option("summary", "only the numbers, not the keys")],
    notes: """
      One line for each key that differs: what would bring it into step ("push" or "pull"), what that would do at
      the receiver ("add", "change" or "delete"), and the key. Both copies are compared as of the start of the
      command. Ends with 1 if anything differs. PEER is as for "sync". Copies that hold only some keys cannot be
      compared.
      """
  ) { invocation, output in
    let prefix = invocation.prefix(invocation.operands.dropFirst().first)
    let showsKeys = !invocation.has("summary")
    let report = try invocation.withStore(toWrite: false) { store in
      try run(
        invocation, store, with: invocation.operands[0].text, in: KeyRange(prefix: prefix),
        showing: showsKeys ? .both : nil, output)
    }
    if !showsKeys { try summarize(report, direction: .both, invocation, output) }
    return report.isEmpty ? .done : .notFound
  }.printing(JSONReference.diff)

  /// The switch of the commands that move records.
  static let dryRun = Option("dry-run", "show what would be moved, and move nothing")

  /// Shows what a command of this direction would move: the numbers, and with `--verbose` the keys.
  static func dryRun(
    _ invocation: Invocation, _ store: Store, with peer: String, _ direction: SyncDirection, _ output: Output
  ) throws {
    let shown = invocation.has("verbose") ? direction : nil
    let report = try run(invocation, store, with: peer, in: .all, showing: shown, output)
    try summarize(report, direction: direction, invocation, output)
  }

  /// Compares, and shows the keys that a command of the direction `shown` would move: without one, no key is
  /// kept in memory.
  private static func run(
    _ invocation: Invocation, _ store: Store, with peer: String, in range: KeyRange,
    showing shown: SyncDirection?, _ output: Output
  ) throws -> ComparisonReport {
    let node = try Node(store: store, configuration: invocation.nodeConfiguration)
    let found = Locked([KeyDifference]())
    let report = try blocking {
      try await node.compare(with: peer, in: range) { part in
        guard let shown else { return }
        found.withLock { found in found += part.filter { $0.moves(in: shown) } }
      }
    }
    // In the order of the keys: the comparison goes by their hashes.
    for difference in found.withLock({ $0 }).sorted(by: { $0.key < $1.key }) {
      try write(difference, invocation, to: output)
    }
    return report
  }

  private static func write(
    _ difference: KeyDifference, _ invocation: Invocation, to output: Output
  ) throws {
    if invocation.wantsJSON { return try output.line(json(difference)) }
    let head = "\(difference.direction)\t\(difference.change)\t"
    try output.write(Array(head.utf8) + output.shown(key: difference.key.bytes) + [0x0A])
  }

  private static func json(_ difference: KeyDifference) -> JSON {
    JSON.object([KeyLine.member(difference.key.bytes)])
      .with("direction", .string(difference.direction)).with("change", .string(difference.change))
      .with("here", json(difference.here)).with("there", json(difference.there))
  }

  private static func json(_ content: KeyDifference.Content) -> JSON {
    switch content {
    case .nothing: .null
    case .deleted(let stamp): ["deleted": .string(stamp.description)]
    case .value(let value):
      JSON.object([
        JSON.Member(name: "size", value: .integer(value.size)),
        JSON.Member(name: "type", value: .string(value.type.description)),
        JSON.Member(name: "stamp", value: .string(value.stamp.description)),
      ]).with("expires", value.deadline.map { .integer($0) })
    }
  }

  private static func summarize(
    _ report: ComparisonReport, direction: SyncDirection, _ invocation: Invocation, _ output: Output
  ) throws {
    func text(_ count: ComparisonReport.Count, _ verb: String) -> String {
      let deletes = count.deletes > 0 ? ", of which \(Text.count(count.deletes, noun: "delete"))" : ""
      return "\(verb) \(Text.count(count.keys, noun: "key"))\(deletes), \(Text.size(count.bytes))"
    }
    func json(_ count: ComparisonReport.Count) -> JSON {
      ["keys": .integer(count.keys), "deletes": .integer(count.deletes), "bytes": .integer(count.bytes)]
    }
    var texts: [String] = []
    var line: JSON = ["peer": .string(report.peer)]
    if direction != .pull {
      texts.append(text(report.toSend, "to push:"))
      line = line.with("to_push", json(report.toSend))
    }
    if direction != .push {
      texts.append(text(report.toReceive, "to pull:"))
      line = line.with("to_pull", json(report.toReceive))
    }
    try invocation.report("\(report.peer): \(texts.joined(separator: "; "))", json: line, output)
  }
}

extension KeyDifference {
  /// The command that brings the key into step.
  fileprivate var direction: String { winner == .here ? "push" : "pull" }

  fileprivate func moves(in direction: SyncDirection) -> Bool {
    switch direction {
    case .push: winner == .here
    case .pull: winner == .there
    case .both: true
    }
  }

  /// What happens to the key at the copy that loses.
  fileprivate var change: String {
    let (new, old) = winner == .here ? (here, there) : (there, here)
    guard case .value = new else { return "delete" }
    if case .value = old { return "change" }
    return "add"
  }
}

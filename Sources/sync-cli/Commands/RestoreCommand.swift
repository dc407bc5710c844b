import SyncStore

/// `restore`: a store made of a backup.
extension BackupCommands {
  static let restore = Command(
    "restore", "make a store of a backup, or take keys back from one", operands: [Operand("FILE")],
    options: [
      Option("state", value: "N", "the state that the N-th backup into FILE has made (default: the last)"),
      Option("replace", "in place of the store that is there"),
      Option("prefix", value: "P", "in the store that is there, and only keys that begin with P"),
      Option("delete", "with --prefix: also delete the keys that FILE does not have"),
      Option("dry-run", "only verify all of FILE, and tell what would be made of it"), Confirmation.yes,
      ItemFailures.strict,
    ],
    notes: """
      All of FILE is verified before anything counts. The restored store is a copy: it converges with the one that it was \
      made of. Ends with 6 if the store that it is to replace is in use. "backup --list" shows the states.

      With --prefix the store stays, in use or not: keys whose values FILE has are set to them again, as new writes that
      reach every copy; others stay, or go with --delete. --dry-run lists the keys (+ KEY, - KEY). A key that is written
      meanwhile is left alone and named; one whose value FILE lacks is named (5), and the others are restored. --delete
      asks on a terminal; elsewhere it needs --yes for more than \(Confirmation.unconfirmedDeletes) keys. Next to the store there must be space for all of FILE.
      """
  ) { invocation, output in
    let path = try invocation.storePath()
    let file = try invocation.path(invocation.operands[0])
    try checkIsFile(invocation)
    let state: Int? = try invocation.integer("state", in: 1...Int.max)
    if let prefix = invocation.value("prefix") {
      return try RestoredKeys(prefix: prefix.bytes, file: file, state: state, invocation).run(output)
    }
    guard !invocation.has("delete") else {
      throw invocation.usage(
        "--delete", reason: "without --prefix the whole store is made of FILE",
        advice: "give --prefix P, or --prefix '' for all keys")
    }
    let isThere = try Store.exists(at: path)
    if invocation.has("dry-run") {
      return try preview(file, state, replacing: isThere ? path : nil, invocation, output)
    }
    if isThere, invocation.has("replace") {
      try invocation.confirm("replace the store in \(Text.printable(path.utf8))?")
    }
    try InitCommand.makeParent(of: path)
    var bar = Progress("restore", totalBytes: 0, enabled: invocation.showsProgress)
    defer { bar.finish() }
    let report = try Store.restore(
      from: file, to: path, state: state, replacing: invocation.has("replace")
    ) { done, total in bar.update(bytes: done, of: total, "verified") }
    let missing = report.missingBlobs.count
    try invocation.report(
      "restored \(report.name) in \(path), as it was at position \(report.position)"
        + (missing > 0 ? "; to be fetched from a peer: \(Text.count(missing, noun: "blob"))" : ""),
      json: [
        "path": .string(path), "name": .string(report.name), "store": .string(report.id.description),
        "time": .integer(report.time), "position": .integer(report.position), "blobs": .integer(report.blobs),
        "missing_blobs": .integer(missing),
      ], output)
    return .done
  }.printing(JSONReference.restore)

  /// Verifies the file, and reports what `restore` would do. `path` is that of the store that is there.
  private static func preview(
    _ file: String, _ state: Int?, replacing path: String?, _ invocation: Invocation, _ output: Output
  ) throws -> ExitCode {
    let summary = try Store.backupSummary(of: file)
    let number = state ?? summary.states.count
    guard number <= summary.states.count else {
      throw invocation.usage(
        "--state \(number)",
        reason: "\(invocation.operands[0].shown) has \(Text.count(summary.states.count, noun: "state"))",
        advice: "\"sync-cli backup --list\" shows them")
    }
    let target = try invocation.storePath()
    if path != nil, !invocation.has("replace") {
      throw StoreError(
        .alreadyExists, "the directory is not empty: name another, or give --replace", path: target)
    }
    if path == nil, try isOccupied(target) {
      throw StoreError(
        .alreadyExists, "something is there that is no store, and is not replaced: name another directory",
        path: target)
    }
    var bar = Progress("restore", totalBytes: 0, enabled: invocation.showsProgress)
    defer { bar.finish() }
    try Store.verifyBackup(file) { done, total in bar.update(bytes: done, of: total, "verified") }
    let chosen = summary.states[number - 1]
    try invocation.report(
      "would restore \(summary.name) in \(target), as it was at position \(chosen.position) on \(Text.date(milliseconds: chosen.time))"
        + (path == nil ? "" : ", and replace the store there"),
      json: [
        "path": .string(target), "name": .string(summary.name), "store": .string("\(summary.store)"),
        "state": .integer(number), "time": .integer(chosen.time), "position": .integer(chosen.position),
        "replaces": .bool(path != nil), "dry_run": true,
      ], output)
    return .done
  }

  /// Whether a directory with entries has that path, or something else that a store cannot replace.
  private static func isOccupied(_ path: String) throws(Failure) -> Bool {
    switch try Descriptor.kind(at: Array(path.utf8)) {
    case nil: false
    case .directory: try !Descriptor.reading(Array(path.utf8), waiting: false).names().isEmpty
    default: true
    }
  }
}

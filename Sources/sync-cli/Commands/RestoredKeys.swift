import SyncStore

/// `restore --prefix`: the keys of a prefix as they were in a backup, in the store that is there.
struct RestoredKeys {
  private let prefix: [UInt8]
  private let file: String
  private let state: Int?
  private let invocation: Invocation
  private let isDryRun: Bool
  private let deletes: Bool

  init(prefix: [UInt8], file: String, state: Int?, _ invocation: Invocation) throws(Failure) {
    (self.prefix, self.file, self.state, self.invocation) = (prefix, file, state, invocation)
    (isDryRun, deletes) = (invocation.has("dry-run"), invocation.has("delete"))
    guard !invocation.has("replace") else {
      throw invocation.usage(
        "--prefix and --replace", reason: "keys are restored into the store that is there",
        advice: "leave out one")
    }
  }

  func run(_ output: Output) throws -> ExitCode {
    try invocation.withStore(toWrite: !isDryRun) { store in
      var bar = Progress("restore", totalBytes: 0, enabled: invocation.showsProgress)
      defer { bar.finish() }
      return try store.withRestoration(
        ofKeys: prefix, from: file, state: state,
        progress: { done, total in bar.update(bytes: done, of: total, "verified") }
      ) { restoration in
        if isDryRun { return try preview(restoration, output) }
        if deletes {
          let added = restoration.changes.count { $0.kind == .added }
          try invocation.confirmDeletes(added, prefix: prefix, because: "are not in the backup")
        }
        return try apply(restoration, to: store, output)
      }
    }
  }

  private func apply(
    _ restoration: KeyRestoration, to store: Store, _ output: Output
  ) throws -> ExitCode {
    var failures = ItemFailures(invocation)
    let written = try restoration.restoreValues()
    let deleted = deletes ? try restoration.deleteAdded() : nil
    try store.sync()
    for key in written.overtaken + (deleted?.overtaken ?? []) {
      Diagnostics.report(
        "restore \(Text.printable(key.bytes)): it was written meanwhile: it is left as it is: restore again if it should go back"
      )
    }
    for failure in written.unreadable {
      try failures.record(
        Failure(StoreError(failure.error, to: "restore \(Text.printable(failure.key.bytes))")))
    }
    let json = figures(restoration, restored: written.restored, deleted: deleted?.restored)
      .with("bytes", .integer(written.bytes)).with("failed", .integer(failures.count))
    try report(restoration, restored: written.restored, deleted: deleted?.restored, json: json, output)
    try failures.check()
    return .done
  }

  private func preview(_ restoration: KeyRestoration, _ output: Output) throws -> ExitCode {
    let changes = restoration.changes.filter { deletes || $0.kind != .added }
    for change in changes {
      try invocation.show(change.key, as: change.kind == .added ? .delete : .put, output)
    }
    let puts = changes.filter { $0.kind != .added }
    let deleted = deletes ? changes.count - puts.count : nil
    let json = figures(restoration, restored: puts.count, deleted: deleted)
      .with("bytes", .integer(puts.reduce(0) { $0 + $1.size })).with("dry_run", true)
    try report(restoration, restored: puts.count, deleted: deleted, json: json, output)
    return .done
  }

  private func figures(_ restoration: KeyRestoration, restored: Int, deleted: Int?) -> JSON {
    let json: JSON = [
      "prefix": KeyLine.prefix(prefix), "time": .integer(restoration.state.time),
      "position": .integer(restoration.state.position), "restored": .integer(restored),
      "unchanged": .integer(restoration.unchanged),
    ]
    return json.with("deleted", deleted.map { .integer($0) })
  }

  private func report(
    _ restoration: KeyRestoration, restored: Int, deleted: Int?, json: JSON, _ output: Output
  ) throws {
    let gone =
      deleted.map { ", \(isDryRun ? "would delete" : "deleted") \(Text.count($0, noun: "key"))" } ?? ""
    let added = deleted == nil ? restoration.changes.count { $0.kind == .added } : 0
    try invocation.report(
      "\(isDryRun ? "would restore" : "restored") \(Text.count(restored, noun: "key")) as of "
        + "\(Text.date(milliseconds: restoration.state.time))\(gone), \(restoration.unchanged) unchanged"
        + (added > 0 ? "; not in the backup, and kept: \(Text.count(added, noun: "key"))" : ""),
      json: json, output)
  }
}

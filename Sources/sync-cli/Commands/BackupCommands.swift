import SyncStore

/// `backup` and `destroy`: operations on the whole store.
enum BackupCommands {
  static let backup = Command(
    "backup", "back the store up into a file", operands: [Operand("FILE")],
    options: [
      Option("replace", "write all anew, also over a backup of another copy or a damaged one"),
      Option("list", "only list the states that FILE holds: number, time, position and bytes"),
    ],
    notes: """
      The first backup into FILE holds everything, each later one appends what came since. Others go on using the store \
      meanwhile. FILE holds the keys of this device: keep it as you keep the store. An encrypted store stays encrypted in it.
      """
  ) { invocation, output in
    let file = try invocation.path(invocation.operands[0])
    if invocation.has("list") { return try list(file, invocation: invocation, output: output) }
    let kind = try Descriptor.kind(at: invocation.operands[0].bytes)
    guard kind == nil || kind == .file else { throw notAFile(invocation) }
    let report = try invocation.withStore { store in
      var bar = Progress("backup", totalBytes: 0, enabled: invocation.showsProgress)
      defer { bar.finish() }
      return try store.backUp(to: file, replacing: invocation.has("replace")) { done in
        bar.show { seconds in
          let rate = Text.size(seconds > 0 ? UInt64(Double(done) / seconds) : 0)
          return ["backup: \(Text.size(done)), \(rate)/s", "backup: \(Text.size(done))", Text.size(done)]
        }
      }
    }
    let missing = report.missingBlobs.count
    try invocation.report(
      "\(report.isFull ? "all" : "what came since") is in \(file): \(Text.count(report.records, noun: "record")), "
        + "\(Text.count(report.blobs, noun: "blob")), \(Text.size(report.writtenBytes)) written"
        + (missing > 0
          ? "; left out: \(Text.count(missing, noun: "blob")) not yet here" : ""),
      json: [
        "file": .string(file), "full": .bool(report.isFull), "state": .integer(report.section),
        "position": .integer(report.position), "records": .integer(report.records),
        "blobs": .integer(report.blobs), "missing_blobs": .integer(missing),
        "written_bytes": .integer(report.writtenBytes), "file_bytes": .integer(report.fileBytes),
      ], output)
    return .done
  }.printing(JSONReference.backup)

  /// Lists the states of a backup file, which needs no store.
  private static func list(_ file: String, invocation: Invocation, output: Output) throws -> ExitCode {
    guard !invocation.has("replace") else {
      throw invocation.usage(
        "--list and --replace", reason: "a list changes nothing", advice: "leave out one")
    }
    try checkIsFile(invocation)
    let summary = try Store.backupSummary(of: file)
    for (index, state) in summary.states.enumerated() {
      if invocation.wantsJSON {
        try output.line([
          "state": .integer(index + 1), "time": .integer(state.time), "position": .integer(state.position),
          "bytes": .integer(state.bytes), "name": .string(summary.name), "store": .string("\(summary.store)"),
          "encrypted": .bool(summary.isEncrypted),
        ])
      } else {
        try output.line(
          "\(index + 1)  \(Text.date(milliseconds: state.time))  position \(state.position)  \(Text.size(state.bytes))"
        )
      }
    }
    if summary.isUnfinished {
      Diagnostics.report(
        "backup --list \(invocation.operands[0].shown): the last backup into it was interrupted: the states above are whole: back up again"
      )
    }
    return .done
  }

  /// Reports a missing or unreadable file as other commands do.
  static func checkIsFile(_ invocation: Invocation) throws {
    _ = try Descriptor.reading(invocation.operands[0].bytes, waiting: false)
    guard try Descriptor.kind(at: invocation.operands[0].bytes) == .file else { throw notAFile(invocation) }
  }

  private static func notAFile(_ invocation: Invocation) -> Failure {
    invocation.usage(invocation.operands[0].shown, reason: "it is no regular file", advice: "name one")
  }

  static let destroy = Command(
    "destroy", "remove the store with all that is in it", options: [Confirmation.yes],
    notes:
      "There is no way back. The passphrase of an encrypted store is not needed. Ends with 6 if the store is in use."
  ) { invocation, output in
    let path = try invocation.storePath()
    // A store with a damaged identity file can be removed, too.
    if (try? Store.exists(at: path)) ?? true {
      try invocation.confirm("remove \(Text.printable(path.utf8)) with all that is in it?")
    }
    guard try Store.remove(at: path) else {
      throw StoreError(.notAStore, "there is no store here: name the directory of one", path: path)
    }
    try invocation.report("removed \(path)", json: ["path": .string(path)], output)
    return .done
  }.printing(JSONReference.destroy)
}

import SyncStore

/// `backup`, `restore`, `destroy`: operations on the whole store.
enum BackupCommands {
  static let backup = Command(
    "backup", "back the store up into a file", operands: [Operand("FILE")],
    options: [Option("replace", "write all anew, also over a backup of another copy or a damaged one")],
    notes: """
      The first backup into FILE holds everything, each later one appends what came since. Others go on using the store \
      meanwhile. FILE holds the keys of this device: keep it as you keep the store. An encrypted store stays encrypted in it.
      """
  ) { invocation, output in
    let file = try invocation.path(invocation.operands[0])
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
  }

  private static func notAFile(_ invocation: Invocation) -> Failure {
    invocation.usage(invocation.operands[0].shown, reason: "it is no regular file", advice: "name one")
  }

  static let restore = Command(
    "restore", "make a store of a backup", operands: [Operand("FILE")],
    options: [
      Option("state", value: "N", "the state that the N-th backup into FILE has made (default: the last)"),
      Option("replace", "in place of the store that is there"),
    ],
    notes: """
      All of FILE is verified before anything counts. The restored store is a copy: it converges with the one that it was \
      made of. Ends with 6 if the store that it is to replace is in use.
      """
  ) { invocation, output in
    let path = try invocation.storePath()
    let file = try invocation.path(invocation.operands[0])
    // Reports a missing or unreadable file as other commands do.
    _ = try Descriptor.reading(invocation.operands[0].bytes, waiting: false)
    guard try Descriptor.kind(at: invocation.operands[0].bytes) == .file else { throw notAFile(invocation) }
    try InitCommand.makeParent(of: path)
    let state: Int? = try invocation.integer("state", in: 1...Int.max)
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
  }

  static let destroy = Command(
    "destroy", "remove the store with all that is in it",
    notes:
      "There is no way back. The passphrase of an encrypted store is not needed. Ends with 6 if the store is in use."
  ) { invocation, output in
    let path = try invocation.storePath()
    guard try Store.remove(at: path) else {
      throw StoreError(.notAStore, "there is no store here: name the directory of one", path: path)
    }
    try invocation.report("removed \(path)", json: ["path": .string(path)], output)
    return .done
  }
}

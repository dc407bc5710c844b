import SyncStore

/// `verify`: is every byte what was written?
enum VerifyCommand {
  static let command = Command(
    "verify", "check every record and every blob",
    options: [Option("repair", "fetch what is damaged from the peers")],
    notes: "One line for each place that is damaged. Ends with 5 if there is any that could not be repaired."
  ) { invocation, output in
    try invocation.withStore(toWrite: invocation.has("repair")) { store in
      var bar = Progress("verify", totalBytes: 0, enabled: invocation.showsProgress)
      let report = try store.verify { done, total in bar.update(bytes: done, of: total, "of blobs") }
      bar.finish()
      if invocation.wantsJSON {
        try output.line(json(report))
      } else {
        for line in report.damage { try output.line(Text.printable(line.utf8)) }
        if !invocation.isQuiet { try output.line(summary(report)) }
      }
      if report.isClean { return .done }
      throw Failure(
        .damaged,
        "verify: \(Text.count(report.damage.count, "place")) damaged: the disk or somebody changed bytes:"
          + " \"sync-cli verify --repair\" fetches what is lost from the peers")
    }
  }

  private static func summary(_ report: VerificationReport) -> String {
    let missing = report.missingBlobs.isEmpty ? "" : ", \(Text.count(report.missingBlobs.count, "blob")) still to come"
    let verdict = report.isClean ? "all whole" : "\(report.damage.count) damaged"
    return "\(Text.count(report.records, "record")), \(Text.count(report.blobs, "blob"))\(missing): \(verdict)"
  }

  private static func json(_ report: VerificationReport) -> JSON {
    [
      "clean": .bool(report.isClean), "records": .integer(report.records), "blobs": .integer(report.blobs),
      "damage": .array(report.damage.map { .string($0) }),
      "damaged_blobs": .array(report.damagedBlobs.map { .string("\($0.hash)") }),
      "missing_blobs": .array(report.missingBlobs.map { .string("\($0.hash)") }),
    ]
  }
}

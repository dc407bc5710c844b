import Replication
import SyncStore

/// `verify`: checks every byte against its checksum.
enum VerifyCommand {
  static let command = Command(
    "verify", "check every record and every blob",
    options: [Option("repair", "fetch what is damaged from the peers")],
    notes: """
      One line for each place that is damaged. Ends with 5 if there is any that could not be repaired. With
      --repair it also says what was repaired.
      """
  ) { invocation, output in
    try invocation.withStore(toWrite: invocation.has("repair")) { store in
      var report = try verify(store, invocation)
      let before = report.damage.count
      var alone: Failure?
      var missing = 0
      if invocation.has("repair"), !report.isClean || !report.missingBlobs.isEmpty {
        let losses = try store.keysToRecover()
        alone = try repair(report, store: store, invocation: invocation)
        if alone == nil {
          report = try verify(store, invocation)
          missing = try store.countUnrecovered(of: losses)
        }
      }
      let repaired = report.mended.count + max(0, before - report.damage.count)
      if invocation.wantsJSON {
        try output.line(json(report, repaired: repaired))
      } else {
        for line in report.damage { try output.line(Text.printable(ToolWords.translated(line).utf8)) }
        if !invocation.isQuiet {
          for line in report.mended {
            try output.line("repaired: " + Text.printable(ToolWords.translated(line).utf8))
          }
          try output.line(summary(report, repaired: repaired))
        }
      }
      if report.isClean, missing > 0 {
        throw Failure(
          .damaged,
          "verify --repair: \(Text.count(missing, noun: "key")) lost by the damage did not come again: no peer that was reached has the latest values, or they were deleted there: look in other copies and backups"
        )
      }
      if report.isClean {
        // Blobs that are still to be fetched are not damage: only report that there is no peer.
        if let alone { Diagnostics.report(alone.message) }
        return .done
      }
      throw alone
        ?? Failure(
          .damaged,
          "verify: \(Text.count(report.damage.count, noun: "place")) damaged: the disk or a program changed bytes:"
            + " \"sync-cli verify --repair\" mends what can be mended here, and fetches what is lost from the peers"
        )
    }
  }.printing(JSONReference.verify)

  private static func verify(_ store: Store, _ invocation: Invocation) throws -> VerificationReport {
    var bar = Progress("verify", totalBytes: 0, enabled: invocation.showsProgress)
    defer { bar.finish() }
    return try store.verify { done, total in bar.update(bytes: done, of: total, "of blobs") }
  }

  /// Fetches damaged values from any peer that has them.
  ///
  /// A lost record only needs a pull: opening the store for writing has already made it forget what it had
  /// received. Returns the error to end with if there is no peer.
  private static func repair(
    _ report: VerificationReport, store: Store, invocation: Invocation
  ) throws -> Failure? {
    for blob in report.damagedBlobs { try store.want(blob) }
    let own = try StoreKeys(store).identity().id
    let membership = Membership(store)
    let peers = try membership.peers().map(\.name)
    let members = try membership.members().filter { $0.device != own && !$0.addresses.isEmpty }.map(\.name)
    guard !(peers + members).isEmpty else {
      return Failure(
        .damaged,
        "verify --repair: no peer to fetch from: no address of one is known: name one by \"sync-cli peer add\""
      )
    }
    for name in peers + members.filter({ !peers.contains($0) }) {
      do {
        _ = try SyncCommands.run(invocation, store, with: name, .pull)
      } catch {
        // Another peer may have it.
        Diagnostics.report("verify --repair: \(name): \(Failure(error).message)")
      }
    }
    return nil
  }

  private static func summary(_ report: VerificationReport, repaired: Int) -> String {
    let mended = repaired == 0 ? "" : ", \(Text.count(repaired, noun: "place")) repaired"
    let missing =
      report.missingBlobs.isEmpty
      ? "" : ", \(Text.count(report.missingBlobs.count, noun: "blob")) still to come"
    let elsewhere =
      report.absentBlobs == 0
      ? "" : ", \(Text.count(report.absentBlobs, noun: "blob")) elsewhere on purpose (\(reasons(report)))"
    let verdict = report.isClean ? "all whole" : "\(report.damage.count) damaged"
    return
      "\(Text.count(report.records, noun: "record")), \(Text.count(report.blobs, noun: "blob"))\(missing)\(elsewhere)\(mended): \(verdict)"
  }

  private static func reasons(_ report: VerificationReport) -> String {
    let leftOut = report.absentBlobs - report.evictedBlobs
    return [
      leftOut > 0 ? "\(leftOut) left out by the policy" : nil,
      report.evictedBlobs > 0 ? "\(report.evictedBlobs) left to keep the limits" : nil,
    ].compactMap { $0 }.joined(separator: ", ")
  }

  private static func json(_ report: VerificationReport, repaired: Int) -> JSON {
    [
      "clean": .bool(report.isClean), "records": .integer(report.records), "blobs": .integer(report.blobs),
      "damage": .array(report.damage.map { .string(ToolWords.translated($0)) }),
      "damaged_blobs": .array(report.damagedBlobs.map { .string("\($0.hash)") }),
      "missing_blobs": .array(report.missingBlobs.map { .string("\($0.hash)") }),
      "absent_blobs": .integer(report.absentBlobs), "evicted_blobs": .integer(report.evictedBlobs),
      "repaired": .integer(repaired),
      "mended": .array(report.mended.map { .string(ToolWords.translated($0)) }),
    ]
  }
}

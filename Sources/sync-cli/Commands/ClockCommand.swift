import Replication
import SyncStore

/// `clock`: how the clocks of members stand against this one, as they told when they were last met; and what is done about writes that
/// were stamped by a clock that ran ahead.
enum ClockCommand {
  static let command = Command(
    "clock", "show by how much the clocks of members differ from this one",
    options: [
      Option("restamp", "give what was written here while this clock ran ahead the present time")
    ],
    notes: """
      Each line has a member's name, by how many milliseconds its clock was ahead of this one (behind, if below zero), and
      when that was found. Copies whose clocks differ by more than 60 s do not sync.

      After this clock ran ahead and was put right, members would let what was written here meanwhile wait until its time has come.
      --restamp gives it the present time, in its old order, and can be done as long as none of it can have reached a member or a
      backup: stop the daemon before the clock is put right, and restamp before it is started again.
      """
  ) { invocation, output in
    if invocation.has("restamp") { return try restamp(invocation, output) }
    return try invocation.withStore(toWrite: false) { store in
      if let warning = store.clockWarning { Diagnostics.report("clock: \(warning)") }
      let lead = try store.clockLead()
      if lead > Limits.clockDriftMilliseconds {
        Diagnostics.report(
          "clock: what is written here is stamped \(lead) ms ahead of this clock, and members let it wait: if this clock is right, "
            + "run `sync-cli clock --restamp`")
      }
      let contacts = Contacts(store)
      let own = try StoreKeys(store).identity().id
      for member in try Membership(store).members() where member.device != own {
        let contact = try contacts.contact(member.device)
        if invocation.wantsJSON {
          let json: JSON = ["name": .string(member.name), "device": .string("\(member.device)")]
          try output.line(
            json.with("offset_ms", contact.map { .integer($0.clockOffset) }).with(
              "found", contact.map { .integer($0.time) }))
        } else if let contact {
          try output.line(
            "\(member.name)  \(contact.clockOffset < 0 ? "" : "+")\(contact.clockOffset) ms  "
              + Text.date(milliseconds: contact.time))
        } else {
          try output.line("\(member.name)  not met yet")
        }
      }
      return .done
    }
  }

  private static func restamp(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    let report = try invocation.withStore { store in try store.restampUnsent() }
    let text =
      report.aheadMilliseconds == 0
      ? "nothing is stamped ahead of this clock"
      : "\(report.writes) writes that were stamped up to \(report.aheadMilliseconds) ms ahead have the present time now"
    try invocation.tell(
      text,
      json: JSON.object([
        .init(name: "restamped_writes", value: .integer(report.writes)),
        .init(name: "ahead_ms", value: .integer(report.aheadMilliseconds)),
      ]), output)
    return .done
  }
}

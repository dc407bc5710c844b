import Replication
import SyncStore

/// `clock`: the clocks of members relative to this one, as of their last session, and handling of writes
/// stamped by a clock that ran ahead.
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
      warn(store)
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
  }.printing(JSONReference.clock)

  /// Commands that write user keys, and warn if those will not take effect elsewhere for a while.
  static let writers: StringSet = [
    "put", "delete", "import", "load", "conflicts restore", "expire", "mv", "cp", "edit",
  ]

  /// The warning about stamps that are ahead of the clock; nil if none are.
  static func warning(_ store: Store) throws(StoreError) -> String? {
    guard try store.isClockAhead else { return nil }
    let lead = try store.clockLead()
    let until = store.environment.now() + lead - min(lead, Limits.clockDriftMilliseconds)
    return
      "what is written here is stamped \(lead) ms ahead of this clock, and does not count on other members before "
      + "\(Text.date(milliseconds: until)): if this clock is right, run `sync-cli clock --restamp` before any of it is sent"
  }

  static func warn(_ store: Store) {
    if let warning = try? warning(store) { Diagnostics.report("clock: \(warning)") }
  }

  private static func restamp(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    let report = try invocation.withStore { store in try store.restampUnsent() }
    let text =
      report.aheadMilliseconds == 0
      ? "nothing is stamped ahead of this clock"
      : "\(Text.count(report.writes, noun: "write")) stamped up to \(report.aheadMilliseconds) ms ahead: given the present time"
    try invocation.report(
      text,
      json: JSON.object([
        .init(name: "restamped_writes", value: .integer(report.writes)),
        .init(name: "ahead_ms", value: .integer(report.aheadMilliseconds)),
      ]), output)
    return .done
  }
}

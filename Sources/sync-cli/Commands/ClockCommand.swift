import Replication
import SyncStore

/// `clock`: how the clocks of members stand against this one, as they told when they were last met.
enum ClockCommand {
  static let command = Command(
    "clock", "show by how much the clocks of members differ from this one",
    notes: """
      Each line has a member's name, by how many milliseconds its clock was ahead of this one (behind, if below zero), and
      when that was found. Copies whose clocks differ by more than 60 s do not sync.
      """
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      if let warning = store.clockWarning { Diagnostics.report("clock: \(warning)") }
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
}

import Replication
import SyncStore

/// `peer rename`: gives a member or a peer another name.
enum RenameCommand {
  static let command = Command(
    "peer rename", "give a member or a peer another name",
    operands: [Operand("NAME"), Operand("NEW-NAME")],
    notes: """
      A member's name changes on every copy that receives the change; this copy's own name can be changed, too. A name
      that "peer add" gave changes on this copy alone, unless it is the name of that member. Other copies can still use the
      name under which they know it as a peer; a daemon's configuration that names it in "peers" must be edited.
      Ends with 1 if nothing is called NAME, with 3 if NEW-NAME is taken, and for a member where this copy is read-only or was
      revoked.
      """
  ) { invocation, output in
    let name = invocation.operands[0].text
    let newName = try MemberCommands.name(invocation.operands[1], invocation)
    let hasChanged = try invocation.withStore { store in
      let membership = Membership(store)
      guard
        try membership.peer(named: name) != nil || membership.members().contains(where: { $0.name == name })
      else {
        throw Failure(
          .notFound,
          "peer rename \(invocation.operands[0].shown): nothing is called so: \"sync-cli peer list\" shows those there are"
        )
      }
      return try membership.rename(name, to: newName)
    }
    try invocation.report(
      hasChanged
        ? "\(invocation.operands[0].shown) is \(newName) from now on" : "it is called \(newName) already",
      json: ["name": .string(newName), "before": .string(name), "changed": .bool(hasChanged)], output)
    return .done
  }.printing(JSONReference.rename)
}

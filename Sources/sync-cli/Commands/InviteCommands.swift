import Replication
import SyncStore

/// `invite list`, `invite revoke`: the invitations issued by this copy.
enum InviteCommands {
  static let list = Command(
    "invite list", "show the invitations of this copy: id, right, when it ends, who redeemed it",
    notes: """
      Shows those that have not ended. One that was redeemed can be used again only by the device that redeemed it, should the
      answer not have reached it, and does not count among the \(Limits.invitations) that can be open. Tokens are not shown: they are not kept.
      """
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let membership = Membership(store)
      let names = Dictionary(
        try membership.members().map { ($0.device, $0.name) }, uniquingKeysWith: { first, _ in first })
      for invitation in try membership.invitations() {
        let redeemer = invitation.redeemer.map { names[$0] ?? "\($0)" }
        let ends = Text.date(milliseconds: invitation.expires)
        if invocation.wantsJSON {
          let json: JSON = [
            "id": .string(invitation.id), "right": .string("\(invitation.right)"), "expires": .string(ends),
            "open": .bool(redeemer == nil),
          ]
          try output.line(
            json.with("redeemed_by", redeemer.map { .string($0) })
              .with("relay", invitation.relay.map { .string($0) }))
        } else {
          let state = redeemer.map { "redeemed by \(Text.printable($0.utf8))" } ?? "open"
          let relay = invitation.relay.map { ", through \(Text.printable($0.utf8))" } ?? ""
          try output.line("\(invitation.id) \(invitation.right), until \(ends), \(state)\(relay)")
        }
      }
      return .done
    }
  }.printing(JSONReference.invitations)

  static let revoke = Command(
    "invite revoke", "withdraw an invitation of this copy", operands: [Operand("ID")],
    notes: """
      ID is what "invite list" shows. It cannot be redeemed from then on. A device that has redeemed it already is
      a member: "peer revoke" takes that away. One that waits in a relay is deleted there, too. Ends with 1 if there is no such invitation, or it has ended.
      """
  ) { invocation, output in
    let id = invocation.operands[0]
    let isWithdrawn = try invocation.withStore { store in
      let node = try Node(store: store, configuration: invocation.nodeConfiguration)
      return try blocking { try await node.withdraw(invitation: id.text) }
    }
    guard isWithdrawn else {
      throw Failure(
        .notFound,
        "invite revoke \(id.shown): no invitation of this copy has that id, or it has ended: \"sync-cli invite list\" shows those there are"
      )
    }
    try invocation.report("withdrew \(id.shown)", json: ["withdrawn": .string(id.text)], output)
    return .done
  }.printing(JSONReference.revokeInvitation)
}

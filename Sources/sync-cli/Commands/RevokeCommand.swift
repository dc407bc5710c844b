import Replication
import SyncStore

/// `peer revoke`: ends a membership.
enum RevokeCommand {
  static let command = Command(
    "peer revoke", "take a member's rights away, and begin a new group key", operands: [Operand("NAME")],
    options: [Confirmation.yes],
    notes: """
      The member is let in by no copy that has heard of it. What it holds already it keeps: nothing can take that back.
      What is sent from now on is encrypted under a key that it does not get. Ends with 3 for this copy itself, and where this copy is
      read-only or was revoked: do it on another one.
      """
  ) { invocation, output in
    let name = invocation.operands[0].text
    try invocation.confirm("revoke \(invocation.operands[0].shown) for good?")
    let epoch = try invocation.withStore { store in try Membership(store).revokeAndRenewKeys(name) }
    try invocation.report(
      "revoked \(invocation.operands[0].shown); group key epoch \(epoch) has begun",
      json: ["revoked": .string(name), "epoch": .integer(epoch)], output)
    return .done
  }.printing(JSONReference.revoke)
}

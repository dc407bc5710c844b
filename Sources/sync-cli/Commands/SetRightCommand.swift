import Replication
import SyncStore

/// `peer set-right`: sets the access right of a member.
enum SetRightCommand {
  static let command = Command(
    "peer set-right", "let a member only read, or read and write",
    operands: [Operand("NAME"), Operand("read-only|read-write")],
    notes: """
      Its sessions begin anew with that right. A read-only member pulls; its own writes are refused, there and by everybody else.
      Ends with 1 for a name that no member has, with 3 for this copy itself, for a member that was revoked, and where this copy is
      read-only or was revoked: do it on another one.
      """
  ) { invocation, output in
    let (name, word) = (invocation.operands[0].text, invocation.operands[1])
    guard let right = [Member.Right.readOnly, .readWrite].first(where: { "\($0)" == word.text }) else {
      throw invocation.usage(
        "\"\(word.shown)\"", reason: "no such right", advice: "it is read-only or read-write")
    }
    let hasChanged = try invocation.withStore { store in
      let membership = Membership(store)
      guard try membership.members().contains(where: { $0.name == name }) else {
        throw Failure(
          .notFound,
          "peer set-right \(invocation.operands[0].shown): no member is called so: \"sync-cli peer list\" shows those there are"
        )
      }
      return try membership.setRight(right, of: name)
    }
    try invocation.report(
      "\(invocation.operands[0].shown) is \(right)\(hasChanged ? " from now on" : " already")",
      json: ["name": .string(name), "right": .string("\(right)"), "changed": .bool(hasChanged)], output)
    return .done
  }.printing(JSONReference.setRight)
}

/// Translates advice in library messages, which names API calls, into the corresponding commands.
enum ToolWords {
  private static let commands = [
    ("`Store.create`", "`init`"), ("`Store.verify`", "`verify --repair`"),
    ("`Store.importAll(from:)`", "`dump`, `load`"),
    ("`Store.restampUnsent`", "`clock --restamp`"),
    ("`Configuration.allowsNetworkFileSystem`", "`--force-network`"),
    ("`Membership.peers`", "`peer list`"), ("`Membership.add`", "`peer add`"),
    ("`Membership.relays`", "`peer list`"),
    ("`Membership.members`", "`peer list`"), ("`Membership.setRight`", "`peer set-right`"),
    ("`Node.prepare`", "`init`"), ("`Node.join`", "`join`"), ("`Node.start`", "`serve`"),
    ("`Membership.withdrawInvitation`", "`invite revoke`"),
  ]

  /// The library's message with commands in place of API calls.
  static func translated(_ message: String) -> String {
    guard message.contains("`") else { return message }
    return commands.reduce(message) { text, word in
      text.split(separator: word.0, omittingEmptySubsequences: false).joined(separator: word.1)
    }
  }
}

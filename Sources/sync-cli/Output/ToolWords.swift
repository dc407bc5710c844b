/// The libraries tell programs which call helps; people at a terminal are told the command that does the same.
enum ToolWords {
  private static let commands = [
    ("`Store.create`", "`init`"), ("`Store.verify`", "`verify --repair`"),
    ("`Store.importAll(from:)`", "`dump`, `load`"),
    ("`Store.restampUnsent`", "`clock --restamp`"),
    ("`Configuration.allowsNetworkFileSystem`", "`--force-network`"),
    ("`Membership.peers`", "`peer list`"), ("`Membership.add`", "`peer add`"),
    ("`Membership.members`", "`peer list`"), ("`Membership.setRight`", "`peer set-right`"),
    ("`Node.prepare`", "`init`"), ("`Node.join`", "`join`"), ("`Node.start`", "`serve`"),
    ("`Membership.withdrawInvitation`", "`invite revoke`"),
  ]

  /// A message of a library in the words of the tool.
  static func translated(_ message: String) -> String {
    guard message.contains("`") else { return message }
    return commands.reduce(message) { text, word in
      text.split(separator: word.0, omittingEmptySubsequences: false).joined(separator: word.1)
    }
  }
}

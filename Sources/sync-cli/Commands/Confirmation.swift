/// Questions before what cannot be undone.
///
/// They are asked only where people are: standard input and standard error are the terminal. A command in a
/// pipe or a service runs as it always did.
enum Confirmation {
  static let yes = Option("yes", "do not ask; a question is asked on a terminal only")

  /// Without a terminal, more deletes than these need `--yes`.
  static let unconfirmedDeletes = 1000

  /// Whether a question can be asked.
  static var isPossible: Bool { System.isTerminal(0) && System.isTerminal(2) }
}

extension Invocation {
  /// Asks on a terminal whether `count` keys with a prefix may be deleted; elsewhere a large number of them
  /// needs `--yes`. `reason` completes "keys that begin with P …".
  func confirmDeletes(_ count: Int, prefix: [UInt8], because reason: String) throws(Failure) {
    guard count > 0 else { return }
    let what = "\(Text.count(count, noun: "key")) that begin with \"\(Text.printable(prefix))\""
    guard
      Confirmation.isPossible || count <= Confirmation.unconfirmedDeletes || has(Confirmation.yes.name)
    else {
      throw Failure(
        .refused,
        "\(command.name) --delete: \(what) \(reason): more than \(Confirmation.unconfirmedDeletes) would go, and nothing was done: "
          + "look at --dry-run, and give --yes")
    }
    try confirm("delete \(what) and \(reason)?")
  }

  /// Asks on a terminal, unless `--yes` is given. Throws if the answer is no.
  func confirm(_ question: String) throws(Failure) {
    guard !has(Confirmation.yes.name), Confirmation.isPossible else { return }
    guard Terminal.confirms("\(command.name): \(question) [y/N] ") else {
      try Interruption.check()
      throw Failure(
        .refused, "\(command.name): not confirmed: nothing was changed: answer y, or give --yes")
    }
  }
}

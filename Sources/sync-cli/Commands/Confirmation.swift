/// Questions before what cannot be undone.
///
/// They are asked only where people are: standard input and standard error are the terminal. A command in a
/// pipe or a service runs as it always did.
enum Confirmation {
  static let yes = Option("yes", "do not ask; a question is asked on a terminal only")

  /// Whether a question can be asked.
  static var isPossible: Bool { System.isTerminal(0) && System.isTerminal(2) }
}

extension Invocation {
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

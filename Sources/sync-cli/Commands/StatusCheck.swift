import Replication
import SyncStore

/// `status --check`: what needs attention, for monitoring.
struct StatusCheck {
  /// A condition that needs attention.
  struct Problem: Equatable {
    /// One word, for scripts.
    let name: String
    let text: String
  }

  let problems: [Problem]

  /// Looks for problems. `maximumLag`: milliseconds that a member may lack a write; nil for any time.
  init(_ store: Store, maximumLag: UInt64?) throws {
    let status = try store.status()
    let denial = try store.writeDenial ?? (try? Membership(store).own())?.right.denial
    var problems: [Problem] = []
    // Damage since the journal was read is known only once the record is read.
    let losses = try store.snapshot().scanReadable(.all) { _ in }.doubts
    let damaged = max(status.damagedPlaces, losses.count)
    if damaged > 0 {
      problems.append(
        Problem(name: "damaged", text: "\(Text.count(damaged, noun: "place")): see \"sync-cli verify\""))
    }
    if let warning = store.clockWarning { problems.append(Problem(name: "clock", text: warning)) }
    problems += try StoreHealth(store, denial).problems
    problems += DaemonReport.problems(try DaemonReport.read(store))
    // A store without keys of its own has no members.
    if let members = try? OtherCopies(store) {
      problems += try members.problems(store, maximumLag: maximumLag)
    }
    self.problems = problems
  }

  /// Prints the problems; the exit code tells whether there are any.
  func report(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    if invocation.wantsJSON {
      try output.line([
        "ok": .bool(problems.isEmpty),
        "problems": .array(problems.map { ["name": .string($0.name), "text": .string($0.text)] }),
      ])
    } else {
      for problem in problems { try output.line("\(problem.name): \(problem.text)") }
      if problems.isEmpty, !invocation.isQuiet { try output.line("ok") }
    }
    return problems.isEmpty ? .done : .notFound
  }
}

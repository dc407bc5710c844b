private import Synchronization

/// Whether a pausable transaction has more to do.
public enum TransactionStep: Hashable, Sendable {
  /// There is another step.
  case next
  /// That was the last one.
  case done
}

/// How a pausable transaction went.
public struct PausableReport: Hashable, Sendable {
  /// Steps that were committed.
  public internal(set) var steps = 0
  /// How often it stepped aside for others.
  public internal(set) var pauses = 0
}

extension Store {
  /// Does much work in steps, and steps aside between them for writers that wait, here and in other processes.
  ///
  /// `step` is called until it says that it is done. Each step is a transaction of its own: it is found whole
  /// or not at all, after a crash too, and what it throws undoes that step and ends the work, not the steps
  /// before it. So what others write may come between any two steps, and the next one reads it. As long as
  /// nobody waits the steps follow each other without the mutex being given back.
  ///
  /// Made durable once, at the end, as the mode has it, also if a step throws.
  ///
  /// - Throws: what `step` throws, and as `transaction`. The steps before it stay.
  @discardableResult
  public func pausableTransaction(
    durability: Durability? = nil, _ step: (inout Transaction) throws -> TransactionStep
  ) throws -> PausableReport {
    try checkWritable()
    var report = PausableReport()
    do {
      while try advance(&report, step) == .next {
        report.pauses += 1
        control.yieldToWriters()
      }
    } catch {
      if report.steps > 0 { try awaitDurability(control.tail, durability: durability) }
      throw error
    }
    try awaitDurability(control.tail, durability: durability)
    return report
  }

  /// Steps until one is the last, or somebody waits.
  private func advance(
    _ report: inout PausableReport, _ step: (inout Transaction) throws -> TransactionStep
  ) throws -> TransactionStep {
    throttleWriter()
    try lockWriters()
    transactionThread.store(SystemCall.thread, ordering: .relaxed)
    defer {
      transactionThread.store(0, ordering: .relaxed)
      control.unlock()
    }
    while true {
      var transaction = Transaction(
        store: self, composer: newTransactionBuilder(limit: Limits.transactionBytes))
      let outcome = try step(&transaction)
      try commit(&transaction)
      report.steps += 1
      // Who compacts takes the mutex as any writer does.
      if outcome == .done || control.isContended || writeThrottle.isUrgent {
        return outcome
      }
    }
  }
}

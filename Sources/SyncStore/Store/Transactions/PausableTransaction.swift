private import Synchronization

/// Whether a pausable transaction has more to do.
public enum TransactionStep: Hashable, Sendable {
  /// There is another step.
  case next
  /// This was the last step.
  case done
}

/// The result of a pausable transaction.
public struct PausableReport: Hashable, Sendable {
  /// Steps that were committed.
  public internal(set) var steps = 0
  /// How often it yielded to other writers.
  public internal(set) var pauses = 0
}

extension Store {
  /// Does a large amount of work in steps, and yields between them to waiting writers, here and in other
  /// processes.
  ///
  /// `step` is called until it returns `.done`. Each step is a transaction of its own, atomic under crashes.
  /// An error thrown by `step` undoes that step and ends the work; earlier steps stay. Writes of others may
  /// come between any two steps, and the next step sees them. While no writer waits, the steps run without
  /// releasing the mutex.
  ///
  /// Everything is made durable once, at the end, as the mode requires, also if a step throws.
  ///
  /// - Throws: what `step` throws, and as `transaction`. Earlier steps stay.
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

  /// Runs steps until the last one, or until a writer waits.
  private func advance(
    _ report: inout PausableReport, _ step: (inout Transaction) throws -> TransactionStep
  ) throws -> TransactionStep {
    writes.compaction.throttleWriter()
    try writes.lockWriters()
    writes.transactionThread.store(SystemCall.thread, ordering: .relaxed)
    defer {
      writes.transactionThread.store(0, ordering: .relaxed)
      control.unlock()
    }
    while true {
      var transaction = Transaction(
        store: self, builder: writes.newTransactionBuilder(limit: Limits.transactionBytes))
      let outcome = try step(&transaction)
      try commit(&transaction)
      report.steps += 1
      // A compaction acquires the mutex like any writer.
      if outcome == .done || control.isContended || writes.compaction.throttle.isUrgent {
        return outcome
      }
    }
  }
}

/// Group commit for tasks, on one thread: writes that arrive during a sync are appended after it and made
/// durable together by the next sync.
final class AsyncWriter: Sendable {
  private struct Job {
    /// Appends. Returns the store to be synced afterwards, if any.
    var append: @Sendable () throws(StoreError) -> Store?
    var finish: @Sendable (StoreError?) -> Void
  }

  private struct State {
    var jobs: [Job] = []
    var isRunning = false
  }

  private let state = LockedField(State())
  private let queue = Background.SerialQueue("syncstore.writer")

  /// Queues a write: calls `append`, syncs the store that it returns, then calls `finish` with the error, if
  /// any.
  func add(
    _ append: @escaping @Sendable () throws(StoreError) -> Store?,
    finish: @escaping @Sendable (StoreError?) -> Void
  ) {
    let begins = state.withLock { state in
      state.jobs.append(Job(append: append, finish: finish))
      defer { state.isRunning = true }
      return !state.isRunning
    }
    if begins { queue.run { self.work() } }
  }

  private func work() {
    while case let jobs = next(), !jobs.isEmpty {
      var unsynced: [Job] = []
      var store: Store?
      for job in jobs {
        do throws(StoreError) {
          if let written = try job.append() {
            store = written
            unsynced.append(job)
          } else {
            job.finish(nil)
          }
        } catch {
          job.finish(error)
        }
      }
      var failure: StoreError?
      do throws(StoreError) { try store?.sync() } catch { failure = error }
      for job in unsynced { job.finish(failure) }
    }
  }

  private func next() -> [Job] {
    state.withLock { state in
      defer { state.jobs = [] }
      state.isRunning = !state.jobs.isEmpty
      return state.jobs
    }
  }
}

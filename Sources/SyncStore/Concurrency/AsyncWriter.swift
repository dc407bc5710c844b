/// Makes the writes of tasks that do not wait themselves: what has come while a sync was running is appended
/// next, and made durable by one sync. So any number of tasks share syncs, on one thread.
final class AsyncWriter: Sendable {
  private struct Job {
    /// Appends. Returns what is to be synced afterwards, if anything.
    var append: @Sendable () throws(StoreError) -> Store?
    var finish: @Sendable (StoreError?) -> Void
  }

  private struct State {
    var jobs: [Job] = []
    var isRunning = false
  }

  private let state = LockedField(State())
  private let queue = Background.SerialQueue("syncstore.writer")

  /// Has `append` called, in turn, then what it returns synced; `finish` hears how that went.
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

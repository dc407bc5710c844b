public import SyncStore

/// Progress of an attempt to enforce the limits of large values.
public struct BlobTrimProgress: Hashable, Sendable {
  /// Objects examined so far, and their total.
  public let done: Int, total: Int
  /// Objects and bytes evicted so far.
  public let evicted: Int, evictedBytes: UInt64
}

// Evicting large values that other members hold.
extension Node {
  /// Evicts the least recently used large values until the limits hold, but only those that enough other
  /// members confirm to hold intact now. Evicted values are fetched again when read. Dials members that are
  /// not connected.
  ///
  /// Readers and writers do not wait for it. While a copy evicts it confirms no blob to other copies, so
  /// that no two copies can evict the last replicas.
  ///
  /// - Parameters:
  ///   - limits: the limits to enforce; nil for those of the store (`Store.blobLimits`).
  ///   - progress: called after each batch of values, on any thread.
  /// - Throws: `.unavailable` if another eviction is in progress; `.store`.
  public func trimBlobs(
    to limits: BlobLimits? = nil, progress: @escaping @Sendable (BlobTrimProgress) -> Void = { _ in }
  ) async throws(ReplicationError) -> BlobTrimReport {
    try await trim(limits, dialling: true, progress)
  }

  /// Attempts to acquire the eviction pass, and milliseconds between two: another process evicts, or this
  /// copy is just confirming holdings to a member.
  private static let acquireAttempts = 50, pauseForTurn = 100

  func trim(
    _ limits: BlobLimits?, dialling: Bool, _ progress: @escaping @Sendable (BlobTrimProgress) -> Void
  ) async throws(ReplicationError) -> BlobTrimReport {
    let core = core
    // Before the eviction pass: while it lasts, this copy confirms nothing.
    if dialling {
      await withCheckedContinuation { continuation in
        context.loop.execute { core.value.blobFetches.connectAllMembers { continuation.resume() } }
      }
    }
    defer {
      if dialling { context.loop.execute { core.value.blobFetches.releaseSessions() } }
    }
    let turn = try await acquireEvictionPass(limits)
    defer { turn.end() }
    var leaving = PendingEviction()
    do throws(ReplicationError) {
      var someoneAnswers = true
      while true {
        let batch = try await runOnWorker { () throws(StoreError) in try turn.next() }
        if batch.isEmpty {
          // A value of the batch being evicted may have to stay: then others are next.
          guard try await leaving.end() else { break }
          continue
        }
        var answers: [DeviceID: HoldingsStated.Statement] = [:]
        if someoneAnswers {
          answers = await withCheckedContinuation { continuation in
            context.loop.execute {
              core.value.blobFetches.ask(batch.map(\.blob)) { continuation.resume(returning: $0) }
            }
          }
          // The remaining objects are counted, and stay.
          someoneAnswers = !answers.isEmpty
        }
        let statements = answers
        try await leaving.end()
        // Concurrently, the members are asked about the next batch.
        leaving.begin(count: batch.count) { [self] () throws(ReplicationError) in
          try await evict(batch, statements: statements, turn: turn)
        } progress: { done in
          let report = turn.report
          progress(
            BlobTrimProgress(
              done: done + report.kept, total: turn.total, evicted: report.evicted,
              evictedBytes: report.evictedBytes))
        }
      }
    } catch {
      // The pass ends after the batch in progress.
      _ = try? await leaving.end()
      throw error
    }
    let store = store
    return try await runOnWorker { () throws(StoreError) in
      let report = turn.end()
      try store.recordBlobTrim(report)
      return report
    }
  }

  /// A batch being evicted while members are asked about the next one.
  private struct PendingEviction {
    private var done = 0
    private var task: Task<Result<Void, ReplicationError>, Never>?

    mutating func begin(
      count: Int, _ body: @escaping @Sendable () async throws(ReplicationError) -> Void,
      progress: @escaping @Sendable (Int) -> Void
    ) {
      done += count
      let done = done
      task = Task {
        do throws(ReplicationError) { try await body() } catch { return .failure(error) }
        progress(done)
        return .success(())
      }
    }

    /// Waits for the eviction of the batch. False if there is none.
    @discardableResult
    mutating func end() async throws(ReplicationError) -> Bool {
      guard let task else { return false }
      self.task = nil
      try await task.value.get()
      return true
    }
  }

  private func evict(
    _ batch: [EvictionCandidate], statements: [DeviceID: HoldingsStated.Statement], turn: EvictionPass
  ) async throws(ReplicationError) {
    try await runOnWorker { () throws(StoreError) in
      var holders = batch.map { _ in [[UInt8]]() }
      for (device, statement) in statements {
        for (index, isHeld) in statement.confirms(batch).enumerated() where isHeld {
          holders[index].append(device.bytes)
        }
      }
      try turn.evict(batch, heldBy: holders)
    }
  }

  private func acquireEvictionPass(_ limits: BlobLimits?) async throws(ReplicationError) -> EvictionPass {
    let store = store
    for _ in 0..<Self.acquireAttempts {
      let turn = try await runOnWorker { () throws(StoreError) in
        if let limits { return try store.beginEviction(limits) }
        return try store.beginEviction(try store.blobLimits)
      }
      if let turn { return turn }
      try? await Task.sleep(for: .milliseconds(Self.pauseForTurn))
      if Task.isCancelled { break }
    }
    throw ReplicationError(.unavailable, "large values are being made to leave already: try again later")
  }

  private func runOnWorker<Answer: Sendable>(
    _ body: @escaping @Sendable () throws(StoreError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    try await context.workers.run { () throws(ReplicationError) in try mappingStoreErrors(body) }
  }

  /// Enforces the limits of the store periodically in the background, with the members that are connected.
  func startEnforcingBlobLimits() {
    upkeep.withLock { task in
      guard task == nil else { return }
      task = Task { [weak self] in
        while !Task.isCancelled {
          guard let seconds = await self?.secondsToUpkeep() else { return }
          try? await Task.sleep(for: .seconds(seconds))
          guard !Task.isCancelled else { return }
          await self?.enforceBlobLimitsOnce()
        }
      }
    }
  }

  private func secondsToUpkeep() async -> UInt32 {
    let store = store
    let limits = try? await runOnWorker { () throws(StoreError) in try store.blobLimits }
    return limits.map { $0.trimSeconds == 0 ? 60 : $0.trimSeconds } ?? 60
  }

  /// Evicts once if the limits are exceeded.
  func enforceBlobLimitsOnce() async {
    let store = store
    do throws(ReplicationError) {
      let isDue = try await runOnWorker { () throws(StoreError) in
        guard try store.blobLimits.trimSeconds > 0 else { return false }
        return try store.exceedsBlobLimits()
      }
      guard isDue else { return }
      let report = try await trim(nil, dialling: false) { _ in }
      guard report.evicted > 0 else { return }
      context.log.emit(
        .info,
        "\(CountText.of(report.evicted, noun: "large value")) \(report.evicted == 1 ? "has" : "have") left to keep the limits: "
          + CountText.of(report.evictedBytes, noun: "byte")
      )
    } catch {
      guard error.store?.code != .closed else { return }
      context.log.emit(.warning, "the limits of large values cannot be kept: \(error.message)")
    }
  }
}

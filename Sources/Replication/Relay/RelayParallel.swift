/// Runs `body` for each item, at most `limit` at the same time. Answers are in the order of the items; after
/// a failure nothing more begins, and it is thrown when those that run have ended.
func inParallel<Item: Sendable, Answer: Sendable>(
  _ items: [Item], limit: Int,
  _ body: @escaping @Sendable (Item) async throws(ReplicationError) -> Answer
) async throws(ReplicationError) -> [Answer] {
  typealias Outcome = Result<Answer, ReplicationError>
  let outcomes = await withTaskGroup(of: (Int, Outcome).self) { group -> [Outcome?] in
    var outcomes = [Outcome?](repeating: nil, count: items.count)
    var (next, hasFailed) = (0, false)
    while true {
      while next < items.count, next < limit || outcomes[next - limit] != nil, !hasFailed {
        let (index, item) = (next, items[next])
        group.addTask { (index, await outcome(of: item, body)) }
        next += 1
      }
      guard let (index, outcome) = await group.next() else { return outcomes }
      outcomes[index] = outcome
      if case .failure = outcome { hasFailed = true }
    }
  }
  // Those after a failure may not have begun.
  return try outcomes.compactMap { $0 }.map { outcome throws(ReplicationError) in try outcome.get() }
}

private func outcome<Item: Sendable, Answer: Sendable>(
  of item: Item, _ body: @Sendable (Item) async throws(ReplicationError) -> Answer
) async -> Result<Answer, ReplicationError> {
  do throws(ReplicationError) { return .success(try await body(item)) } catch { return .failure(error) }
}

import SyncStore

/// What the oracle expects of copies that have come into step.
extension Oracle {
  /// All cover and hold the same, with the digest that follows from what was asked for, and of each actor no less than was
  /// `promised` to be durable.
  func checkInStep(
    _ copies: [(name: String, store: Store)], _ clocks: Clocks, promised: [ActorID: UInt64]
  ) throws {
    let first = copies[0].store
    let coverage = Coverage(try first.versionVector())
    for (actor, sequence) in promised where coverage.last(of: actor) < sequence {
      guard isDoubtful(Dot(actor: actor, sequence: sequence)) else {
        throw Violation(
          "in the end \(coverage.last(of: actor)) of \(sequence) acknowledged writes of \(actor) are there")
      }
    }
    let digest = try digest(of: coverage, clocks) { try first.explain($0)?.winner }
    for (name, store) in copies {
      guard try Coverage(store.versionVector()) == coverage else {
        throw Violation(
          "\(name) covers \(try store.versionVector()), \(copies[0].name) \(try first.versionVector())")
      }
      guard try store.digest(at: clocks.own) == digest else {
        throw Violation("the digest of \(name) is not that of the oracle")
      }
      guard try store.verify().isClean else { throw Violation("\(name) is damaged") }
      for key in keys { try checkWinner(of: key, coverage, store, name, clocks) }
    }
  }

  /// All hold the greatest write that was not lost, and read what was asked for with it.
  private func checkWinner(
    of key: Key, _ coverage: Coverage, _ store: Store, _ name: String, _ clocks: Clocks
  ) throws {
    let held = try store.explain(key)?.winner
    guard let top = winner(of: key, in: coverage) else { return }
    if top.content.mayBePurged(by: clocks.latest), held?.isTombstone ?? true { return }
    if held == nil, mayBeBeaten(top, byOneOf: { $0.content.mayBePurged(by: clocks.latest) }) { return }
    guard let held, held.dot == top.dot || mayBeBeaten(top, byOneOf: { $0.dot == held.dot }) else {
      throw Violation(
        "\(name) holds \(held.map { "\($0.dot)" } ?? "nothing") of \(key); the greatest write is \(top)"
      )
    }
    let write = held.dot == top.dot ? top : try doubtfulWrite(held, of: key)
    let expected = write.map { $0.content.isLive(at: clocks.own) ? $0.content.bytes : nil }
    let bytes = try store.get(key)?.bytes
    guard let expected, bytes == expected else {
      throw Violation(
        "\(name) reads \(Content(bytes: bytes)) of \(key), which \(held.dot) has set to \(write.map { "\($0)" } ?? "something else")"
      )
    }
  }
}

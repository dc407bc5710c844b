import SyncStore

/// Checks of converged copies.
extension Oracle {
  /// All copies cover and hold the same, with the digest derived from the requested writes, and cover at
  /// least the `promised` durable writes of each actor, possibly reissued. A large value that `isLost` must
  /// be absent everywhere.
  func checkInStep(
    _ copies: [(name: String, store: Store)], _ clocks: Clocks, promised: [ActorID: UInt64],
    isLost: (BlobReference) throws -> Bool = { _ in false }
  ) throws {
    let first = copies[0].store
    let coverage = Coverage(try first.versionVector())
    for (actor, sequence) in promised where coverage.last(of: actor) < sequence {
      if isDoubtful(Dot(actor: actor, sequence: sequence)) { continue }
      try checkReissued(actor, coverage.last(of: actor)...sequence, coverage, clocks)
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
      for key in keys { try checkWinner(of: key, coverage, store, name, clocks, isLost) }
    }
  }

  /// Acknowledged writes whose dots are not covered: permitted only if machines were rolled back. One of them
  /// may know a round that its sender has since forgotten, so that the sender detects a rollback itself. It
  /// then has reissued its writes, and a greater one of each key is covered.
  private func checkReissued(
    _ actor: ActorID, _ sequences: ClosedRange<UInt64>, _ coverage: Coverage, _ clocks: Clocks
  ) throws {
    for sequence in sequences.dropFirst() {
      guard let write = writes[Dot(actor: actor, sequence: sequence)] else { continue }
      let isPurged = (byKey[write.key] ?? []).contains {
        !($0 < write) && $0.content.mayBePurged(by: clocks.latest)
      }
      if hasDoubts, isPurged || winner(of: write.key, in: coverage).map({ write < $0 }) ?? false { continue }
      if mayBeBeaten(write, byOneOf: { _ in true }) { continue }
      throw Violation("the acknowledged write \(write) is covered nowhere in the end, and nothing greater")
    }
  }

  /// All hold the greatest surviving write, and read its requested value.
  private func checkWinner(
    of key: Key, _ coverage: Coverage, _ store: Store, _ name: String, _ clocks: Clocks,
    _ isLost: (BlobReference) throws -> Bool
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
    if let blob = held.blob, try isLost(blob) { return }
    let bytes = try store.get(key)?.bytes
    guard let expected, bytes == expected else {
      throw Violation(
        "\(name) reads \(Content(bytes: bytes)) of \(key), which \(held.dot) has set to \(write.map { "\($0)" } ?? "something else")"
      )
    }
  }
}

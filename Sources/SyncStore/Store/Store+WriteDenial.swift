/// Whether this copy may write keys of the user's. The right itself is a member's record, which `Replication` reads; what
/// follows from it is kept here, in a local record, so that every process that has the store open refuses alike.
extension Store {
  /// Why writes are refused here; nil if they are not.
  package var writeDenial: WriteDenial? {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.writeDenial } }
  }

  /// Refuses writes from now on, or no longer (nil), in all processes, durably. Costs nothing if it is so already.
  package func setWriteDenial(_ denial: WriteDenial?) throws(StoreError) {
    guard try writeDenial != denial else { return }
    let (_, tail) = try append { composer throws(StoreError) in
      guard composer.state.writeDenial != denial else { return }
      try composer.setLocal(StateKey.writeDenial, denial.map { [$0.rawValue] })
    }
    try sync(upTo: tail)
  }

  /// Refuses before bytes are staged that no record would refer to. The record itself is refused under the writers' mutex.
  func checkMayWrite() throws(StoreError) {
    let denial = engine.withLock { $0.state.writeDenial }
    if let denial { throw denial.error }
  }

  /// Keys of the user's whose current write was made here, in this or an earlier life of the copy, behind a position:
  /// the position, which all others have, is one that a member has acknowledged. At most `limit` are counted.
  package func countOwnWrites(behind position: UInt64, limit: Int) throws(StoreError) -> Int {
    try reading { engine throws(StoreError) in
      var count = 0
      try engine.visit(from: engine.start(of: position + 1)) { view throws(StoreError) in
        guard view.isWrite, view.position > position, let dot = view.dot, engine.state.isMine(dot),
          let key = view.keyBytes, !ReservedKey.isReserved(key), engine.isCurrent(view)
        else { return true }
        count += 1
        return count < limit
      }
      return count
    }
  }
}

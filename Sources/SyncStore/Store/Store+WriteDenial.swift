/// Whether this copy may write user keys. The right itself is in a member's record, which `Replication`
/// reads; the resulting denial is kept here, in a local record, so that every process that has the store open
/// refuses alike.
extension Store {
  /// Why this copy may not write; nil if it may.
  package var writeDenial: WriteDenial? {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.writeDenial } }
  }

  /// Denies writes from now on, or allows them again (nil), in all processes, durably. Costs nothing if that
  /// is already the state.
  package func setWriteDenial(_ denial: WriteDenial?) throws(StoreError) {
    guard try writeDenial != denial else { return }
    let (_, tail) = try writes.append { builder throws(StoreError) in
      guard builder.state.writeDenial != denial else { return }
      try builder.setLocal(StateKey.writeDenial, denial.map { [$0.rawValue] })
    }
    try sync(upTo: tail)
  }

  /// Refuses before blob bytes are staged that no record would refer to. The record itself is refused under
  /// the writers' mutex.
  func checkMayWrite() throws(StoreError) {
    let denial = core.engine.withLock { $0.state.writeDenial }
    if let denial { throw denial.error }
  }

  /// Current writes of user keys made by this copy, in this or an earlier incarnation, after a position, in
  /// journal order; at most `limit`.
  ///
  /// If a member has acknowledged the position, these are the writes that it may lack. The engine's lock is
  /// released between parts of the journal: a write that is replaced during the call may be missing.
  package func ownWrites(after position: UInt64, limit: Int) throws(StoreError) -> [OwnWrite] {
    var (writes, next) = ([OwnWrite](), position + 1)
    while writes.count < limit {
      let (more, last) = try ownWrites(from: next, limit: limit - writes.count)
      writes += more
      guard let last else { break }
      next = last + 1
    }
    return writes
  }

  /// The own writes among the next records of the journal, and the last position scanned; nil if there was
  /// none.
  private func ownWrites(
    from position: UInt64, limit: Int
  ) throws(StoreError) -> (writes: [OwnWrite], last: UInt64?) {
    try reading { engine throws(StoreError) in
      var (writes, last, looked) = ([OwnWrite](), UInt64?.none, 0)
      try engine.visit(from: engine.start(of: position)) { view throws(StoreError) in
        guard view.position >= position else { return true }
        (last, looked) = (view.position, looked + 1)
        if view.isWrite, let version = view.version, engine.state.isMine(version.dot),
          let key = view.keyBytes, !ReservedKey.isReserved(key), engine.isCurrent(view)
        {
          writes.append(
            OwnWrite(
              key: Key(unchecked: key), isDelete: view.kind == .tombstone, version: version,
              position: view.position))
        }
        return writes.count < limit && looked < Self.recordsPerScan
      }
      return (writes, last)
    }
  }

  /// Records scanned per lock acquisition.
  private static let recordsPerScan = 1024

  /// Writes dropped by one append.
  package static let dropsPerAppend = 1 << 16

  /// Drops current writes of user keys made on this copy after a journal position, and returns them. Drops at
  /// most `limit`, the earliest ones: call it until it returns none.
  ///
  /// The keys are absent afterwards. The copy becomes a new actor and requests a full state, as after damage
  /// (rule R9), so the next session restores the other members' values. A round that is being received at the
  /// same time fails with `.overtaken`: closing it would mark as covered the records that a dropped write had
  /// beaten. A write that did reach a member comes back from there. Atomic, and durable on return.
  ///
  /// - Throws: `.notAllowed` if this copy may write: its writes leave with the next session; otherwise as any
  ///   write.
  package func dropOwnWrites(
    after position: UInt64, limit: Int = dropsPerAppend
  ) throws(StoreError) -> [OwnWrite] {
    try checkWritable()
    let found = try ownWrites(after: position, limit: limit)
    let actor = environment.newActor()
    let (dropped, tail) = try writes.append(limit: .max) { builder throws(StoreError) -> [OwnWrite] in
      guard builder.state.writeDenial != nil else {
        throw StoreError(
          .notAllowed, "this copy is read-write: what it has not sent leaves with the next sync", path: path)
      }
      let current = core.engine.withLock { engine in
        found.filter { engine.readable($0.key.bytes)?.version == $0.version }
      }
      guard !current.isEmpty else { return [] }
      try builder.changeActor(.localWritesDropped, as: actor)
      try builder.dropDeadRecords(
        current.map {
          TransactionBuilder.RecordToPurge(key: $0.key.bytes, version: $0.version, hadValue: !$0.isDelete)
        })
      return current
    }
    try sync(upTo: tail)
    if !dropped.isEmpty {
      StoreLog.log(
        .warning, path: path,
        "\(CountText.of(dropped.count, noun: "write")) that no member accepts \(dropped.count == 1 ? "was" : "were") dropped: "
          + "everything is asked of the peers again")
    }
    return dropped
  }
}

/// A write of a user key made on this copy and not replaced since.
package struct OwnWrite: Hashable, Sendable {
  /// The key that was written.
  package var key: Key
  /// Whether the write deleted the key.
  package var isDelete: Bool
  /// Its stamp and dot.
  var version: Version
  /// Its position in the journal.
  package var position: UInt64

  /// Its stamp, which orders writes among members.
  package var stamp: Stamp { version.stamp }
}

/// Parked records that an append has applied, or that prove to be this copy's own and are never parked
/// (decision 5).
extension Engine {
  /// Applies parked records of this copy itself, and those up to the stamp that the local record at `view`
  /// declares applied (`StateKey.unparked`).
  ///
  /// Compaction drops the record that names a former incarnation, so its writes may be replayed before it is
  /// known that they are own.
  mutating func applyParked(by view: RecordView, indexing: Bool) {
    let released = view.unparkedUpTo
    let applied = parkedRecords { version in
      state.isMine(version.dot) || released.map { version.stamp <= $0 } ?? false
    }
    for location in applied {
      guard let view = try? journal.record(at: location), let version = view.version, let shape = view.shape
      else { continue }
      guard !indexing else {
        do throws(StoreError) { try unpark(location) } catch { index.failure = error }
        continue
      }
      let key = view.key(shape)
      parked.remove([location], from: key)
      state.observe(version, applied: true)
      if view.isReserved(shape) { reserved.insert(key) }
      sortedKeys.index = nil
      if parked.isEmpty { publish() }
    }
  }
}

extension RecordView {
  /// The stamp up to which this local record declares parked records applied; nil for any other record.
  fileprivate var unparkedUpTo: Stamp? {
    guard kind == .local, let shape, key(shape) == StateKey.unparked else { return nil }
    return ReplicaState.unparked(value(shape))
  }
}

/// Parked records that an append has applied, and those that turn out to be this copy's own, which never wait (decision 5).
extension Engine {
  /// Applies parked records that are this copy's own: compaction drops the record that named a former incarnation, so that its writes
  /// may be read before it is known whose they are. And those up to a stamp that the local record at `view` says were applied
  /// (`StateKey.released`).
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
      let left = (parked[key] ?? []).filter { $0 != location }
      parked[key] = left.isEmpty ? nil : left
      state.observe(version, applied: true)
      if view.isReserved(shape) { reserved.insert(key) }
      sortedIndex = nil
      if parked.isEmpty { publish() }
    }
  }
}

extension RecordView {
  /// Up to which stamp this local record says that all that had waited was applied; nil if it is none that says so.
  fileprivate var unparkedUpTo: Stamp? {
    guard kind == .local, let shape, key(shape) == StateKey.unparked else { return nil }
    return ReplicaState.unparked(value(shape))
  }
}

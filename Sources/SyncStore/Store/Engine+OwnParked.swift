/// Own writes are never parked (decision 5), whatever the order in which a journal is read.
extension Engine {
  /// Applies parked records that turn out to be this copy's own: compaction drops the record that named a former incarnation,
  /// so that its writes may be read before it is known whose they are.
  mutating func applyOwnParked(indexing: Bool) {
    for location in Array(parked.values.joined()) {
      guard let view = try? journal.record(at: location), let version = view.version,
        state.isMine(version.dot),
        let shape = view.shape
      else { continue }
      guard !indexing else {
        do throws(StoreError) { try release(location) } catch { index.failure = error }
        continue
      }
      let key = view.key(shape)
      let left = (parked[key] ?? []).filter { $0 != location }
      parked[key] = left.isEmpty ? nil : left
      state.absorb(version, applied: true)
      if view.isReserved(shape) { reserved.insert(key) }
      ordered = nil
      if parked.isEmpty { publish() }
    }
  }
}

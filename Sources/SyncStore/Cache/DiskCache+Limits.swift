private import Synchronization

// Enforcing the limits while values are set.
extension DiskCache {
  /// Adds an entry, making room for it if necessary.
  func add(_ name: BlobHash, _ entry: [UInt8]) throws(StoreError) {
    // Other writers may take the room that was made: the attempts are bounded.
    for attempt in 0... {
      let seen = packs.takenBytes
      do throws(StoreError) {
        try packs.add(name, entry, .replacing)
        return
      } catch {
        guard error.code == .diskFull else { throw error }
        if error.errno == 0 {
          guard attempt < Self.maxAttempts else {
            // Other writers took the room each time: this value is evicted at once, together with the older
            // value of its key.
            _ = try packs.remove(name)
            return
          }
          try makeRoom(for: PackLayout.fileBytes(for: entry.count), seen: seen)
          continue
        }
        let (count, bytes) = try packs.totals()
        guard count > 0 else { throw error }
        // On a full disk a cache makes room by itself.
        try trim(toBytes: max(0, bytes / 2 - entry.count))
      }
    }
  }

  private static let maxAttempts = 100

  func exceeds(_ limits: Limits) throws(StoreError) -> Bool {
    let (count, bytes) = try packs.totals()
    return count > limits.count || bytes > limits.bytes
  }

  /// Whether the files are so close to their limit that room should be made now, before a writer has to wait
  /// for it.
  var isNearlyFull: Bool {
    let limit = packs.space.limit
    return limit < .max && packs.takenBytes > limit - limit / 16
  }

  /// Starts a trim in the background. A request during a running trim starts another one after it, so that
  /// values set during the first one are covered.
  func trimSoon() {
    while true {
      let before = trimming.load(ordering: .acquiring)
      guard before < 2 else { return }
      let result = trimming.compareExchange(
        expected: before, desired: before + 1, ordering: .acquiringAndReleasing)
      guard result.exchanged else { continue }
      if before == 0 { Background.runMaintenance { [weak self] in self?.trimUntilDone() } }
      return
    }
  }

  private func trimUntilDone() {
    repeat {
      trimming.store(1, ordering: .releasing)
      _ = try? trim()
      if (try? checkOpen()) != nil, isNearlyFull { try? makeRoom(for: 0, seen: 0) }
    } while !trimming.compareExchange(expected: 1, desired: 0, ordering: .acquiringAndReleasing).exchanged
  }
}

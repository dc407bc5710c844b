private import Synchronization

// Holding the limits while values are set.
extension DiskCache {
  /// Adds an entry, and makes room for it where there is none.
  func add(_ name: BlobHash, _ entry: [UInt8]) throws(StoreError) {
    // Room that was made may go to another writer: none waits for ever.
    for attempt in 0... {
      let seen = packs.takenBytes
      do throws(StoreError) {
        try packs.add(name, entry, .replacing)
        return
      } catch {
        guard error.code == .diskFull else { throw error }
        if error.errno == 0 {
          guard attempt < Self.maxAttempts else {
            // Others have taken each room that was made: this value leaves at once, and the older one of its key with it.
            _ = try packs.remove(name)
            return
          }
          try makeRoom(for: PackLayout.fileBytes(for: entry.count), seen: seen)
          continue
        }
        let (count, bytes) = try packs.totals()
        guard count > 0 else { throw error }
        // A cache makes room by itself.
        try trim(toBytes: max(0, bytes / 2 - entry.count))
      }
    }
  }

  private static let maxAttempts = 100

  func exceeds(_ limits: Limits) throws(StoreError) -> Bool {
    let (count, bytes) = try packs.totals()
    return count > limits.count || bytes > limits.bytes
  }

  /// Have the files so many bytes that room is better made now than when a writer waits for it?
  var isNearlyFull: Bool {
    let limit = packs.fileLimit.load(ordering: .relaxed)
    return limit < .max && packs.takenBytes > limit - limit / 16
  }

  /// Trims in the background. One that is asked for while another is under way follows it: what came meanwhile is not left.
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

/// Records that were stamped ahead of this machine's clock, once their time has come.
extension Store {
  /// Applies parked records whose time has come, with what the rules make of them. The caller holds the mutex.
  @inline(never)
  func releaseParked(_ engine: inout Engine) throws(StoreError) {
    let wall = environment.now()
    var due = engine.due(upTo: Stamp(milliseconds: wall + Limits.clockDriftMilliseconds))[...]
    while !due.isEmpty {
      var composer = engine.composer(wall: wall, limit: Limits.transactionBytes)
      var count = 0
      do throws(StoreError) {
        for location in due {
          try release(location, in: &engine, &composer)
          count += 1
        }
      } catch {
        // What follows from all of them is more than one transaction may have; of one alone it never is.
        guard error.code == .outOfBounds, count > 0 else { throw error }
        composer = engine.composer(wall: wall, limit: Limits.transactionBytes)
        for location in due.prefix(count) { try release(location, in: &engine, &composer) }
      }
      // First what follows from them: should that fail, they are still parked.
      try commit(composer, &engine)
      do throws(StoreError) {
        for location in due.prefix(count) { try engine.release(location) }
      } catch {
        // It may be in neither by now: an index that is built anew has all whose time has come.
        engine.index.failure = engine.index.failure ?? error
        return engine.overcomeTrouble()
      }
      due = due.dropFirst(count)
    }
  }

  private func release(
    _ location: Location, in engine: inout Engine, _ composer: inout Composer
  ) throws(StoreError) {
    let record = try engine.record(at: location)
    try composer.release(record, held: try? engine.held(record.key), kept: engine.keptLosers)
  }
}

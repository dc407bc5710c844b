/// How re-keying works: the key file says first what is to be, a new segment begins so, each older one is compacted into
/// one that is so, and the key file forgets what none uses any more.
///
/// At every moment the key file has the keys of all segments, so that a kill costs nothing and the next one goes on from
/// there (F12). Others read and write meanwhile; who begins a segment reads the key file before.
extension Store {
  /// Does the store in the directory `path` have to be opened with a passphrase? False if there is none.
  ///
  /// - Throws: `.inputOutput` if the directory cannot be looked at.
  public static func isEncrypted(at path: String) throws(StoreError) -> Bool {
    try JournalKeys.isThere(path, Environment.real().storage)
  }

  /// Is anything in the journal sealed, or to be?
  public var isEncrypted: Bool { journalKeys.isEncrypted }

  /// Is a re-keying under way, or was one interrupted? `finishRekeying` goes on with it.
  public var isRekeying: Bool { journalKeys.ring?.isInTransition ?? false }

  /// What a re-keying has done.
  public struct RekeyingReport: Hashable, Sendable {
    /// Segments that were written anew.
    public var rewritten = 0
    /// Segments that could not be, because they are damaged: their keys are kept.
    public var damaged = 0
    /// Large values that were written anew.
    public var blobs = 0
    /// Does the key file hold nothing but what is in use from now on? It keeps the older keys as long as another process
    /// has the store open, which may know those alone; who opens the store when that one is gone removes them.
    public var isComplete = false

    /// Of one that rewrote nothing.
    package init(isComplete: Bool = false) { self.isComplete = isComplete }
  }

  /// Asks for another passphrase from now on. At once, whatever the store holds; who has it open goes on.
  ///
  /// - Throws: `.notEncrypted`; `.wrongKey` if another process has changed it since this one opened the store; `.busy` within a
  ///   transaction of this thread.
  public func changePassphrase(to passphrase: Passphrase) throws(StoreError) {
    try passphrase.check()
    try withCompactionLock { () throws(StoreError) in
      var ring = try ownRing()
      guard
        ring.change(
          passphrase: passphrase.secret, cost: configuration.passphraseCost, random: environment.random)
      else { throw journalKeys.noMemory }
      try replaceKeys(with: ring)
    }
  }

  /// Seals all that is written from now on under a new master key, and writes what there is anew under it.
  ///
  /// - Throws: `.notEncrypted`; `.diskFull` if there is no room for a copy of a segment: `finishRekeying` goes on later.
  @discardableResult
  public func renewKeys() throws(StoreError) -> RekeyingReport {
    try withCompactionLock { () throws(StoreError) in
      var ring = try ownRing()
      guard ring.masters.count < KeyRingFile.mostGenerations else {
        throw StoreError(
          .outOfBounds, "too many generations of keys are in use: mend the damaged segments first", path: path
        )
      }
      ring.rotate(least: Location(packed: control.tail).segment + 1, random: environment.random)
      return try rewrite(under: ring)
    }
  }

  /// Encrypts a plain store. Others that have it open can go on after they opened it again, with the passphrase.
  ///
  /// - Throws: `.alreadyExists` if it is encrypted.
  @discardableResult
  public func encrypt(with passphrase: Passphrase) throws(StoreError) -> RekeyingReport {
    try withCompactionLock { () throws(StoreError) in
      guard journalKeys.ring == nil else {
        throw StoreError(.alreadyExists, "the store is encrypted: change its passphrase", path: path)
      }
      let ring = try journalKeys.newRing(
        passphrase, configuration.passphraseCost, first: Location(packed: control.tail).segment + 1,
        acceptsPlain: true)
      return try rewrite(under: ring)
    }
  }

  /// Makes an encrypted store a plain one.
  ///
  /// - Throws: `.notEncrypted`.
  @discardableResult
  public func decrypt() throws(StoreError) -> RekeyingReport {
    try withCompactionLock { () throws(StoreError) in
      var ring = try ownRing()
      ring.stopEncrypting()
      return try rewrite(under: ring)
    }
  }

  /// Goes on with a re-keying that was interrupted; does nothing if there is none.
  ///
  /// - Throws: `.diskFull` if there is no room for a copy of a segment: it can be called again; `.readOnly`,
  ///   `.closed`, `.forked`.
  @discardableResult
  public func finishRekeying() throws(StoreError) -> RekeyingReport { try finishRekeying(waiting: true) }

  /// The same, or `.busy` at once if another process is at it.
  @discardableResult
  func finishRekeying(waiting: Bool) throws(StoreError) -> RekeyingReport {
    try withCompactionLock(waiting: waiting) { () throws(StoreError) in
      guard let ring = journalKeys.ring, ring.isInTransition else { return RekeyingReport(isComplete: true) }
      return try rewrite(under: try ownRing())
    }
  }

  /// Works while nobody else compacts, or changes the keys, here or in another process. `.busy` within a transaction of this
  /// thread.
  private func withCompactionLock<Result>(
    waiting: Bool = true, _ body: () throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try checkWritable()
    // A compaction that is under way waits for the writers' mutex, here or in another process.
    try checkNotWriting("change its keys")
    return try compacting.withLock { compactions throws(StoreError) in
      guard try controlFile.lock(byte: StoreLayout.compactionByte, .exclusive, wait: waiting) else {
        throw StoreError(.busy, "another process compacts the store: try again", path: path)
      }
      defer { _ = try? controlFile.lock(byte: StoreLayout.compactionByte, .none, wait: false) }
      compactions += 1
      try journalKeys.refresh()
      try finishInstalls()
      return try body()
    }
  }

  /// The keys, as one who may change them has them.
  private func ownRing() throws(StoreError) -> KeyRing {
    guard let ring = journalKeys.ring else {
      throw StoreError(.notEncrypted, "the store is not encrypted: encrypt it first", path: path)
    }
    guard !ring.isStale else {
      throw StoreError(
        .wrongKey, "another process has changed the passphrase: open the store again with the new one",
        path: path)
    }
    return ring
  }

  /// Puts keys in the place of those there are. Where they have their name and it is not known whether that lasts, nothing goes on
  /// (rule R4): what is sealed under them would be lost with them.
  private func replaceKeys(with ring: KeyRing?) throws(StoreError) {
    let storage = environment.storage
    let before = try storage.status(journalKeys.path)?.inode
    do throws(StoreError) { try journalKeys.replace(ring) } catch {
      // Looked at, not read: there may be no descriptor left.
      let isUnchanged = (try? storage.status(journalKeys.path)?.inode == before) ?? false
      if !isUnchanged { control.setPoisoned() }
      throw error
    }
  }

  private func rewrite(under ring: KeyRing) throws(StoreError) -> RekeyingReport {
    // The index of a plain store tells those who guess keys whether they are right.
    try withdrawIndex(unless: true)
    // Whoever begins a segment from now on does so under it.
    try replaceKeys(with: ring)
    try beginSegment(under: ring)
    var report = RekeyingReport()
    var passed: Set<UInt32> = []
    while true {
      let run = try reading { engine throws(StoreError) -> CompactionRun? in
        let places = engine.journal.segments.indices.dropLast()
        let stale = places.first { place in
          let segment = engine.journal.segments[place]
          return segment.header.generation != ring.current && !passed.contains(segment.number)
        }
        guard let stale else { return nil }
        return try CompactionRun(stale..<(stale + 1), in: &engine)
      }
      guard let run else { break }
      passed.formUnion(run.numbers)
      if try compact(run) != nil { report.rewritten += 1 } else { report.damaged += 1 }
      restoreReserveAfterCompaction()
    }
    report.blobs = try renewBlobs()
    if report.damaged == 0 { report.isComplete = try retireOldKeys(ring) }
    return report
  }

  /// Removes the keys of older generations, which no segment uses, if nobody is there who may know nothing newer.
  private func retireOldKeys(_ ring: KeyRing) throws(StoreError) -> Bool {
    try removeReplaced(isPlain: ring.current == 0)
    try rewriteKeyFiles(isPlain: ring.current == 0)
    return try withSoleAccess { () throws(StoreError) in
      let isPlain = ring.current == 0
      try Leftovers.removeStaged(path, storage: environment.storage)
      // What others have put meanwhile, who knew the older keys alone.
      _ = try renewBlobs()
      var settled = ring
      settled.dropOldGenerations()
      // Nobody could open it any more, and who enters next would not know of who writes to it.
      if isPlain { try withdrawIndex(unless: false) }
      // And the files of secrets that they have written.
      try rewriteKeyFiles(isPlain: isPlain) { () throws(StoreError) in
        try replaceKeys(with: isPlain ? nil : settled)
      }
      try restoreIndex()
    }
  }

  /// Goes on with an index in memory, and has all others do so, unless the one in the files is sealed, or is not, as it is
  /// to be.
  private func withdrawIndex(unless isSealed: Bool) throws(StoreError) {
    try lockWriters()
    defer { control.unlock() }
    try engine.withLock { engine throws(StoreError) in
      guard engine.index.isShared, engine.index.hashIndex.isEncrypted != isSealed else { return }
      try JournalIndex.removeFiles(engine.files)
      let index = JournalIndex.inMemory(engine.files, secret: environment.random(16))
      engine.rebuild(with: index, upTo: engine.applied)
    }
  }

  /// Puts the index into files again. Only while nobody else has the store open: those would go on with one of their own,
  /// and this process would not find in its what they write.
  private func restoreIndex() throws(StoreError) {
    try lockWriters()
    defer { control.unlock() }
    try engine.withLock { engine throws(StoreError) in
      if !engine.index.isShared { try installIndex(&engine) }
    }
  }

  /// Does what was left to do when a re-keying had come to its end beside others, if this process is alone now.
  func finishRetiringKeys() throws(StoreError) {
    guard isWritable, let ring = journalKeys.ring, ring.isInTransition, !ring.isStale else { return }
    let isDone = engine.withLock { engine in
      engine.journal.segments.allSatisfy { $0.header.generation == ring.current }
    }
    guard isDone else { return }
    try withCompactionLock(waiting: false) { () throws(StoreError) in _ = try retireOldKeys(try ownRing()) }
  }

  /// Works if no other process has the store open, and lets none enter meanwhile. False, and nothing was done, if one has.
  private func withSoleAccess(_ body: () throws(StoreError) -> Void) throws(StoreError) -> Bool {
    guard configuration.mode != .exclusive else {
      try body()
      return true
    }
    guard try controlFile.lock(byte: StoreLayout.entranceByte, .exclusive, wait: true) else { return false }
    defer { _ = try? controlFile.lock(byte: StoreLayout.entranceByte, .none, wait: false) }
    guard try controlFile.lock(byte: StoreLayout.presenceByte, .exclusive, wait: false) else { return false }
    defer { _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .shared, wait: false) }
    try body()
    return true
  }

  /// Begins a segment, unless the one at the tail is as the ring would have it.
  private func beginSegment(under ring: KeyRing) throws(StoreError) {
    try lockWriters()
    defer { control.unlock() }
    try engine.withLock { engine throws(StoreError) in
      let tail = Location(packed: control.tail)
      guard let segment = engine.journal.segment(tail.segment) else {
        throw StoreError(
          .damaged, "the segment at the tail is not mapped: open the store again", path: journalDirectory)
      }
      guard segment.header.generation != ring.current else { return }
      _ = try beginSegment(after: tail, room: 0, &engine)
      // A segment with nothing in it would look like the work of a recovery that was interrupted.
      var composer = engine.transactionBuilder(wall: environment.now(), limit: Limits.transactionBytes)
      try composer.checkpoint()
      control.tail = Location(segment: tail.segment + 1, offset: SegmentHeader.length).packed
      try commit(composer, &engine)
    }
  }

  /// Removes what is left of segments under older keys, also what a kill has left and what recoveries set aside in
  /// the clear.
  private func removeReplaced(isPlain: Bool) throws(StoreError) {
    try lockWriters()
    defer { control.unlock() }
    try engine.withLock { engine throws(StoreError) in try engine.journal.removeReplaced() }
    let storage = environment.storage
    if !isPlain, journalKeys.ring?.acceptsPlain == true {
      for name in try storage.list(journalDirectory)
      where name.hasPrefix("torn-") || name.hasPrefix("aside-") {
        _ = try storage.remove(journalDirectory + "/" + name)
      }
    }
    try storage.syncDirectory(journalDirectory)
  }
}

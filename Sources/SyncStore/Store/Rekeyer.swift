/// Re-keying: the key file first states the new keys, a new segment begins under them, each older segment is
/// compacted into one under them, and the key file then drops the keys no longer used.
///
/// At every moment the key file has the keys of all segments, so after a kill the next process resumes from
/// there (F12). Others read and write concurrently; a process reads the key file before it begins a segment.
///
/// Locks: the compaction's first (`withCompactionLock`), for the whole of it; the writers' mutex and the
/// engine's lock for single steps.
final class Rekeyer: WritingPart {
  let core: OpenStore
  let keyFiles: KeyFiles
  let writes: WritePath
  private let compactor: Compactor
  private let blobs: BlobTier

  init(_ core: OpenStore, compactor: Compactor, blobs: BlobTier) {
    (self.core, self.compactor, self.blobs, writes) = (core, compactor, blobs, compactor.writes)
    keyFiles = KeyFiles(core)
  }

  var journalSync: JournalSync { compactor.journalSync }

  /// `Store.changePassphrase`.
  func changePassphrase(to passphrase: Passphrase) throws(StoreError) {
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

  /// `Store.renewKeys`.
  func renewKeys() throws(StoreError) -> Store.RekeyingReport {
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

  /// `Store.encrypt`.
  func encrypt(with passphrase: Passphrase) throws(StoreError) -> Store.RekeyingReport {
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

  /// `Store.decrypt`.
  func decrypt() throws(StoreError) -> Store.RekeyingReport {
    try withCompactionLock { () throws(StoreError) in
      var ring = try ownRing()
      ring.stopEncrypting()
      return try rewrite(under: ring)
    }
  }

  /// `Store.finishRekeying` that throws `.busy` at once, unless `waiting`, if another process holds the
  /// compaction lock.
  @discardableResult
  func finish(waiting: Bool) throws(StoreError) -> Store.RekeyingReport {
    try withCompactionLock(waiting: waiting) { () throws(StoreError) in
      guard let ring = journalKeys.ring, ring.isInTransition else {
        return Store.RekeyingReport(isComplete: true)
      }
      return try rewrite(under: try ownRing())
    }
  }

  /// Runs `body` while no other thread or process compacts or changes the keys. `.busy` within a transaction
  /// of this thread.
  private func withCompactionLock<Result>(
    waiting: Bool = true, _ body: () throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try checkWritable()
    // A running compaction waits for the writers' mutex, here or in another process: waiting for it within a
    // transaction would deadlock.
    try writes.checkNotWriting("change its keys")
    return try compactor.compacting.withLock { _ throws(StoreError) in
      guard try controlFile.lock(byte: StoreLayout.compactionByte, .exclusive, wait: waiting) else {
        throw StoreError(.busy, "another process compacts the store: try again", path: path)
      }
      defer { _ = try? controlFile.lock(byte: StoreLayout.compactionByte, .none, wait: false) }
      try journalKeys.refresh()
      try compactor.finishInstalls()
      return try body()
    }
  }

  /// The key ring, for a caller that changes it.
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

  /// Replaces the key file.
  ///
  /// Poisons the store (rule R4) if the new file has its name and may not be durable: everything encrypted
  /// under its keys would be lost with them.
  private func replaceKeys(with ring: KeyRing?) throws(StoreError) {
    let storage = environment.storage
    let before = try storage.status(journalKeys.path)?.inode
    do throws(StoreError) { try journalKeys.replace(ring) } catch {
      // Checked by inode, without reading: there may be no descriptor left.
      let isUnchanged = (try? storage.status(journalKeys.path)?.inode == before) ?? false
      if !isUnchanged { control.setPoisoned() }
      throw error
    }
  }

  private func rewrite(under ring: KeyRing) throws(StoreError) -> Store.RekeyingReport {
    // The hash index of an unencrypted store would let an attacker test guessed keys.
    try withdrawIndex(unless: true)
    // Every segment begun from now on uses the new ring.
    try replaceKeys(with: ring)
    try beginSegment(under: ring)
    var report = Store.RekeyingReport()
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
      if try compactor.compact(run) != nil { report.rewritten += 1 } else { report.damaged += 1 }
      compactor.restoreReserveAfterCompaction()
    }
    report.blobs = try renewBlobs()
    if report.damaged == 0 { report.isComplete = try retireOldKeys(ring) }
    return report
  }

  /// Removes the keys of older generations, which no segment uses, unless another process has the store open
  /// that may know nothing newer.
  private func retireOldKeys(_ ring: KeyRing) throws(StoreError) -> Bool {
    try removeReplaced(isPlain: ring.current == 0)
    try keyFiles.rewrite(isPlain: ring.current == 0)
    return try withSoleAccess { () throws(StoreError) in
      let isPlain = ring.current == 0
      try Leftovers.removeStaged(path, storage: environment.storage)
      // Blobs that other processes stored concurrently, knowing only the older keys.
      _ = try renewBlobs()
      var settled = ring
      settled.dropOldGenerations()
      // No process could open the encrypted index any more, and the next one to enter would not see the
      // writers that use it.
      if isPlain { try withdrawIndex(unless: false) }
      // Also the secret files that other processes wrote concurrently.
      try keyFiles.rewrite(isPlain: isPlain) { () throws(StoreError) in
        try replaceKeys(with: isPlain ? nil : settled)
      }
      try restoreIndex()
    }
  }

  /// Switches this process and all others to an index in memory, unless the encryption of the one in files is
  /// already as `isEncrypted` says.
  private func withdrawIndex(unless isEncrypted: Bool) throws(StoreError) {
    try writes.lockWriters()
    defer { control.unlock() }
    try core.engine.withLock { engine throws(StoreError) in
      guard engine.index.isShared, engine.index.hashIndex.isEncrypted != isEncrypted else { return }
      try JournalIndex.removeFiles(engine.context.files)
      let index = JournalIndex.inMemory(engine.context.files, secret: environment.random(16))
      engine.rebuild(with: index, upTo: engine.applied)
    }
  }

  /// Puts the index into files again.
  ///
  /// Only while no other process has the store open: others would keep using an index of their own, and this
  /// process would not find their writes in its index.
  private func restoreIndex() throws(StoreError) {
    try writes.lockWriters()
    defer { control.unlock() }
    try core.engine.withLock { engine throws(StoreError) in
      if !engine.index.isShared { try recovery.installIndex(&engine) }
    }
  }

  /// Finishes a re-keying that had ended while other processes had the store open, if this process is alone
  /// now.
  func finishRetiringKeys() throws(StoreError) {
    guard isWritable, let ring = journalKeys.ring, ring.isInTransition, !ring.isStale else { return }
    let isDone = core.engine.withLock { engine in
      engine.journal.segments.allSatisfy { $0.header.generation == ring.current }
    }
    guard isDone else { return }
    try withCompactionLock(waiting: false) { () throws(StoreError) in _ = try retireOldKeys(try ownRing()) }
  }

  /// Runs `body` if no other process has the store open, and lets none open it until `body` ends. False, with
  /// nothing done, if one has.
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

  /// Begins a segment, unless the tail segment already uses the current generation.
  private func beginSegment(under ring: KeyRing) throws(StoreError) {
    try writes.lockWriters()
    defer { control.unlock() }
    try core.engine.withLock { engine throws(StoreError) in
      let tail = Location(packed: control.tail)
      guard let segment = engine.journal.segment(tail.segment) else {
        throw StoreError(
          .damaged, "the segment at the tail is not mapped: open the store again", path: journalDirectory)
      }
      guard segment.header.generation != ring.current else { return }
      _ = try writes.segments.begin(after: tail, room: 0, &engine)
      // An empty segment would look like the work of an interrupted recovery.
      var builder = engine.transactionBuilder(wall: environment.now(), limit: Limits.transactionBytes)
      try builder.checkpoint()
      control.tail = Location(segment: tail.segment + 1, offset: SegmentHeader.length).packed
      try writes.commit(builder, &engine)
    }
  }

  /// Removes what is left of segments under older keys, including the leftovers of a kill and the unencrypted
  /// files that recoveries set aside.
  private func removeReplaced(isPlain: Bool) throws(StoreError) {
    try writes.lockWriters()
    defer { control.unlock() }
    try core.engine.withLock { engine throws(StoreError) in try engine.journal.removeReplaced() }
    let storage = environment.storage
    if !isPlain, journalKeys.ring?.acceptsPlain == true {
      for name in try storage.list(journalDirectory)
      where name.hasPrefix("torn-") || name.hasPrefix("aside-") {
        _ = try storage.remove(journalDirectory + "/" + name)
      }
    }
    try storage.syncDirectory(journalDirectory)
  }

  /// Rewrites the blobs whose encryption is not the wanted one: under an older master key, in the clear, or
  /// encrypted while the store is being decrypted.
  ///
  /// Damaged blobs are set aside, to be fetched again. Returns the number rewritten.
  ///
  /// - Throws: `.diskFull`; a later call resumes.
  func renewBlobs() throws(StoreError) -> Int {
    guard try environment.storage.status(path + "/" + StoreLayout.blobs) != nil else { return 0 }
    let renewal = try blobs.store.reencryptAll()
    for blob in try references(toNamed: renewal.damaged, blobs.store.keys.present()) {
      try localKeys.want(blob)
    }
    return renewal.reencrypted
  }
}

extension StorePart {
  /// References of present records to blobs whose file names are among `names`.
  func references(toNamed names: Set<BlobHash>, _ keys: BlobKeys?) throws(StoreError) -> [BlobReference] {
    guard !names.isEmpty else { return [] }
    return try reading { engine throws(StoreError) in
      var found: [BlobReference] = []
      for location in try engine.locations() {
        guard let record = try? engine.record(at: location), case .blob(let blob) = record.content else {
          continue
        }
        let isNamed =
          names.contains(blob.hash) || keys.map { names.contains($0.name(of: blob.hash)) } ?? false
        if isNamed { found.append(blob) }
      }
      return found
    }
  }
}

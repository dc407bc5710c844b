internal import Synchronization

/// How large packs and what is in them may be. Bytes.
package struct PackSettings: Sendable, Equatable {
  /// Objects above this many bytes do not go into packs; at most 64 MiB. 0 for no packs at all.
  package var objectBytes = 4 << 20
  /// A pack, at most.
  package var packBytes = 64 << 20
  /// The first one; each is a quarter of what there is already, up to `packBytes`.
  package var smallestBytes = 1 << 20
  /// What stays free on the file system.
  package var reserveBytes: UInt64 = 4 << 20
  /// Whether a table is as long as the objects that are added call for, and a file is cut to what is in it as soon as nothing is
  /// added any more, not only once it was synced. For a directory of one process: a cache.
  package var savesSpace = false

  /// The defaults were measured: `docs/decisions/0025-packs.md`.
  package init() {}

  /// Every object has a file of its own.
  package static var none: PackSettings {
    var settings = PackSettings()
    settings.objectBytes = 0
    return settings
  }

  /// Does an object of so many bytes go into a pack?
  func takes(_ count: Int) -> Bool { objectBytes > 0 && count <= objectBytes }
}

/// Objects under 32-byte names, many to a file. Thread safe, and safe between processes that use one directory at once.
///
/// Invariants:
/// - The tables of the packs are the truth; what is in memory is read from them and can be dropped.
/// - A pack is known by its number: one that was closed to save descriptors is another object once it is opened again.
/// - Only who holds the lock on byte 0 of a pack adds to it; who counts on an object and who removes it are told apart
///   by the word of its entry.
/// - A pack whose sync failed is never synced again, nor added to (rule R4). One that was left so by an earlier life can be read until what
///   lives in it is copied, and nothing that counts on it becomes durable before (`salvageFailedPacks`).
/// - Bytes of an object stay where they are as long as anybody maps them: space is given back by whole files.
/// - Objects move from pack to pack under `moving`: the locks of files do not tell the threads of one process apart.
/// - Ordinals and numbers are given once: who holds one while all packs go (`moveToTrash`) finds nothing.
/// - Locks are taken in the order `loading`, `moving`, `writing`, `state`; no reader waits for `moving` or `writing`.
package final class PackSet: Sendable {
  /// A pack as this process knows it.
  struct KnownPack {
    let number: UInt64
    /// Nil if it is not open now.
    var pack: Pack?
    /// Entries that the index has.
    var loaded = 0
    /// Nothing is added to it any more.
    var isClosed = false
    /// This process had added to it, and is done.
    var isRetired = false
    var isGone = false
    /// What lives in it is being copied to others.
    var isEvacuating = false
    /// This process has added to it.
    var isOwn = false
    /// Its sync had failed before this process came, and what lives in it is to be copied to others.
    var needsSalvage = false
    /// Before then, by the clock that only rises, it is not mapped anew: where the disk fails each attempt takes long.
    var nextRemapAt: UInt64 = 0
    var liveCount = 0
    var liveBytes = 0
    /// Bytes of its file.
    var fileBytes = 0

    /// Does half of the `used` bytes of objects live, or more?
    func isHalfUsed(_ used: Int) -> Bool { liveBytes * 2 >= used }

    /// Bytes of what lives with what aligns it, at most: what can never come back by copying it.
    func alignedBytes(_ used: Int) -> Int { min(liveBytes + liveCount * (PackLayout.alignment - 1), used) }
  }

  struct State {
    var packs: [KnownPack] = []
    var ordinals: [UInt64: Int] = [:]
    /// Where objects are, by the first eight bytes of their names: ordinal and slot.
    var slotsByPrefix: [UInt64: UInt32] = [:]
    /// Those whose first eight bytes another one has as well.
    var slotsByName: [BlobHash: UInt32] = [:]
    /// Live ones under names of which another one counts.
    var duplicates: [BlobHash: [UInt32]] = [:]
    var openPacks = 0
    var liveCount = 0
    var liveBytes = 0
    /// Bytes of all files that are there.
    var fileBytes = 0

    /// The file of a pack has another length.
    mutating func setFileBytes(_ bytes: Int, _ ordinal: Int) {
      fileBytes += bytes - packs[ordinal].fileBytes
      packs[ordinal].fileBytes = bytes
    }
  }

  /// The pack that this process adds to.
  struct Writer {
    var ordinal: Int?
    var pack: Pack?
    var end = 0
    /// Bytes of an object in the pack before this one, with what aligns it; 0 if there was none.
    var meanBytes = 0
  }

  /// Packs that are open at once: each costs a descriptor.
  static let maxOpenPacks = 192

  let files: BlobFiles
  let settings: PackSettings
  let readOnly: Bool
  /// May other processes use the directory?
  let isShared: Bool
  let boot: UInt64
  let clock: @Sendable () -> UInt64
  let random: @Sendable () -> UInt64
  /// Is told of each sync that failed, whoever asked for it: what it was about never becomes durable (rule R4).
  let onFailedSync: @Sendable (StoreError) -> Void
  let state = LockedField(State())
  let moving = LockedField(())
  let writing = LockedField(Writer())
  private let loading = LockedField(false)
  private let isLoaded = Atomic(false)
  let lastStamp = Atomic<UInt64>(0)
  /// Before then, by the clock that only rises, uses are not noted: one could not be.
  let useRecordingResumesAt = Atomic<UInt64>(0)
  /// Objects added by this process, and those of them that are known durable.
  let added = Atomic<UInt64>(0)
  let addedDurably = Atomic<UInt64>(0)
  let syncTickets = Atomic<UInt64>(0)
  let servedTickets = Atomic<UInt64>(0)
  let syncs = GroupCommit()
  /// Bytes that all files may have. Adding fails beyond it, and what lives may be moved up to `movingLimit`: a writer waits until
  /// room was made, and making room needs some itself.
  let fileLimit = Atomic<Int>(.max)
  let movingLimit = Atomic<Int>(.max)
  /// Bytes of files that were moved aside and are yet to be removed.
  let trashBytes = Atomic<Int>(0)

  init(
    _ files: BlobFiles, settings: PackSettings, readOnly: Bool, isShared: Bool, boot: UInt64,
    clock: @escaping @Sendable () -> UInt64, random: @escaping @Sendable () -> UInt64,
    onFailedSync: @escaping @Sendable (StoreError) -> Void = { _ in }
  ) {
    (self.files, self.settings, self.readOnly, self.isShared) = (files, settings, readOnly, isShared)
    (self.boot, self.clock, self.random, self.onFailedSync) = (boot, clock, random, onFailedSync)
  }

  /// A stamp above all that this process has given: the order of last use is exact.
  func stamp() -> UInt64 {
    let now = clock() << 16
    while true {
      let last = lastStamp.load(ordering: .relaxed)
      let next = max(last &+ 1, now)
      if lastStamp.compareExchange(expected: last, desired: next, ordering: .relaxed).exchanged {
        return next
      }
    }
  }

  // MARK: What there is

  /// Where an object is; nil if it is not here. `following`: looks for what other processes have added since.
  func lookUp(_ name: BlobHash, refreshing: Bool) throws(StoreError) -> (pack: Pack, slot: Int)? {
    try load()
    if let found = try state.withLock({ state throws(StoreError) in try lookUp(name, &state) }) {
      return found
    }
    guard refreshing, isShared else { return nil }
    try refresh()
    return try state.withLock { state throws(StoreError) in try lookUp(name, &state) }
  }

  func lookUp(_ name: BlobHash, _ state: inout State) throws(StoreError) -> (pack: Pack, slot: Int)? {
    if let found = try indexed(name, &state) { return found }
    return try indexDuplicates(name, &state) ? try indexed(name, &state) : nil
  }

  /// Where the index has an object that lives.
  private func indexed(
    _ name: BlobHash, _ state: inout State
  ) throws(StoreError) -> (pack: Pack, slot: Int)? {
    let prefix = name.prefix
    if let place = state.slotsByPrefix[prefix], let pack = try pack(Self.ordinal(place), &state),
      pack.isNamed(name, Self.slot(place))
    {
      if pack.word(Self.slot(place)).isLive { return (pack, Self.slot(place)) }
      state.slotsByPrefix[prefix] = nil
    }
    guard !state.slotsByName.isEmpty, let place = state.slotsByName[name] else { return nil }
    guard let pack = try pack(Self.ordinal(place), &state), pack.word(Self.slot(place)).isLive else {
      state.slotsByName[name] = nil
      return nil
    }
    return (pack, Self.slot(place))
  }

  /// Live objects and their bytes, as far as this process knows.
  func totals() throws(StoreError) -> (count: Int, bytes: Int) {
    try load()
    return state.withLock { ($0.liveCount, $0.liveBytes) }
  }

  /// Calls `body` for each live object, pack by pack.
  func eachObject(_ body: (Pack, Int, Int) throws(StoreError) -> Void) throws(StoreError) {
    try load()
    if isShared { try refresh() }
    try eachPack { pack, ordinal throws(StoreError) in
      for slot in 0..<pack.count
      where pack.word(slot).isLive && pack.isValid(slot) {
        if try isCurrent(pack, slot: slot, ordinal: ordinal) { try body(pack, slot, ordinal) }
      }
    }
  }

  // MARK: Packs

  /// Calls `body` for each pack that is known now and still there.
  func eachPack(_ body: (Pack, Int) throws(StoreError) -> Void) throws(StoreError) {
    for ordinal in 0..<state.withLock({ $0.packs.count }) {
      let pack = try state.withLock { state throws(StoreError) in try self.pack(ordinal, &state) }
      if let pack { try body(pack, ordinal) }
    }
  }

  static func slotReference(_ ordinal: Int, _ slot: Int) -> UInt32 { UInt32(ordinal) << 12 | UInt32(slot) }
  static func ordinal(_ place: UInt32) -> Int { Int(place >> 12) }
  static func slot(_ place: UInt32) -> Int { Int(place & 0xFFF) }

  // MARK: Loading

  /// Reads the tables, and puts right what killed processes left; once.
  func load() throws(StoreError) {
    if isLoaded.load(ordering: .acquiring) { return }
    try loading.withLock { isDone throws(StoreError) in
      guard !isDone else { return }
      try refresh(indexing: readOnly)
      if !readOnly {
        try recoverAbandoned()
        try refresh()
      }
      isDone = true
      isLoaded.store(true, ordering: .releasing)
      // What can be tried again is no matter for who reads: whoever makes the store durable does so.
      do throws(StoreError) { try salvageFailedPacks() } catch {
        guard error.code == .diskFull || error.code == .busy else { throw error }
      }
    }
  }

  /// Takes in packs and, if `taking`, entries that other processes have added.
  func refresh(indexing: Bool = true) throws(StoreError) {
    guard try files.storage.status(files.path("packs")) != nil else { return }
    let numbers = try files.storage.list(files.path("packs")).compactMap { Pack.number($0) }
    try state.withLock { state throws(StoreError) in
      let there = Set(numbers)
      var hasOneGone = false
      for ordinal in state.packs.indices
      where !state.packs[ordinal].isGone && !there.contains(state.packs[ordinal].number) {
        // Made between the listing and now.
        if try files.storage.status(files.path(Pack.name(state.packs[ordinal].number))) == nil {
          drop(ordinal, &state)
          hasOneGone = true
        }
      }
      for number in numbers where state.ordinals[number].map({ state.packs[$0].isGone }) ?? true {
        guard let pack = try openPack(number) else { continue }
        try register(pack, &state)
      }
      guard indexing else { return }
      for ordinal in state.packs.indices
      where !state.packs[ordinal].isGone && !state.packs[ordinal].isClosed {
        if let pack = try pack(ordinal, &state) { try indexNewEntries(pack, ordinal: ordinal, &state) }
      }
      if hasOneGone { try recheckDuplicates(&state) }
    }
  }

  /// Takes in a pack that was just made, or found. One that others have found in the directory before its maker came to this has its
  /// place already, and the maker's object is put there: that one has the lock.
  @discardableResult
  func register(_ pack: Pack, _ state: inout State) throws(StoreError) -> Int {
    if let ordinal = state.ordinals[pack.header.number], !state.packs[ordinal].isGone {
      if state.packs[ordinal].pack == nil { state.openPacks += 1 }
      state.packs[ordinal].pack = pack
      return ordinal
    }
    guard state.packs.count < 1 << 20 else {
      throw StoreError(
        .outOfBounds, "more packs than one process can know: open it again", path: files.directory)
    }
    let ordinal = state.packs.count
    state.packs.append(KnownPack(number: pack.header.number))
    state.setFileBytes(try pack.file.status().size, ordinal)
    state.ordinals[pack.header.number] = ordinal
    keepOpen(pack, ordinal: ordinal, &state)
    return ordinal
  }

  /// Enters what a pack has and the index has not.
  func indexNewEntries(_ pack: Pack, ordinal: Int, _ state: inout State) throws(StoreError) {
    let isSealed = pack.isClosed
    // Behind a loss of power nobody has counted: who only reads goes by the checksums alone.
    let isUncounted = readOnly && !isSealed && !pageCacheSurvived(pack)
    let count = isUncounted ? pack.header.slots : pack.count
    var loaded = isUncounted ? 0 : count
    for slot in state.packs[ordinal].loaded..<max(count, state.packs[ordinal].loaded) {
      // The entry of a removed object is mended too: otherwise it would be reported as damaged for ever.
      guard pack.isValid(slot) || pack.repair(slot), pack.word(slot).isLive else { continue }
      try indexEntry(pack, slot: slot, ordinal: ordinal, &state)
      // A writer may come, and go on behind this one.
      loaded = max(loaded, slot + 1)
    }
    state.packs[ordinal].loaded = max(loaded, state.packs[ordinal].loaded)
    state.packs[ordinal].isClosed = isSealed
  }

  /// Enters one object. Of two of one name the one counts that was used last: neither is removed here, for it is not known
  /// which of them is durable.
  func indexEntry(
    _ pack: Pack, slot: Int, ordinal: Int, _ state: inout State, replacing: Bool = false
  ) throws(StoreError) {
    let (prefix, place) = (pack.prefix(slot), Self.slotReference(ordinal, slot))
    if let old = state.slotsByPrefix[prefix] {
      if old == place { return }
      if let other = try self.pack(Self.ordinal(old), &state), other.word(Self.slot(old)).isLive {
        guard let name = pack.entry(slot)?.name else { return }
        guard other.isNamed(name, Self.slot(old)) else {
          if state.slotsByName[name] == place { return }
          if let older = state.slotsByName[name] {
            uncountLive(older, &state)
            recordDuplicate(older, name: name, &state)
          }
          state.slotsByName[name] = place
          return countLive(pack, slot: slot, ordinal: ordinal, &state)
        }
        guard replacing || pack.word(slot).stamp > other.word(Self.slot(old)).stamp else {
          return recordDuplicate(place, name: name, &state)
        }
        recordDuplicate(old, name: name, &state)
        uncountLive(other, slot: Self.slot(old), ordinal: Self.ordinal(old), &state)
      }
    }
    state.slotsByPrefix[prefix] = place
    countLive(pack, slot: slot, ordinal: ordinal, &state)
  }

  private func uncountLive(_ place: UInt32, _ state: inout State) {
    guard let pack = state.packs[Self.ordinal(place)].pack else { return }
    uncountLive(pack, slot: Self.slot(place), ordinal: Self.ordinal(place), &state)
  }

  /// Is this the place of the object that the index knows?
  func isCurrent(_ pack: Pack, slot: Int, ordinal: Int) throws(StoreError) -> Bool {
    let place = Self.slotReference(ordinal, slot)
    return try state.withLock { state throws(StoreError) in
      if state.slotsByPrefix[pack.prefix(slot)] == place { return true }
      if !state.slotsByName.isEmpty, state.slotsByName.values.contains(place) { return true }
      guard !state.duplicates.isEmpty, let name = pack.entry(slot)?.name, state.duplicates[name] != nil,
        let (counting, other) = try lookUp(name, &state)
      else { return false }
      return counting.isSame(as: pack) && other == slot
    }
  }

  private func countLive(_ pack: Pack, slot: Int, ordinal: Int, _ state: inout State) {
    let size = pack.size(slot)
    state.packs[ordinal].liveCount += 1
    state.packs[ordinal].liveBytes += size
    state.liveCount += 1
    state.liveBytes += size
    let stamp = pack.word(slot).stamp
    // A word is guarded by no checksum: one that cannot be true must not make those overflow that are given from now on.
    guard stamp < PackLayout.greatestStamp else { return }
    // Between a look and a store of its own another thread might give a greater one, which would be given a second time.
    lastStamp.max(stamp, ordering: .relaxed)
  }

  /// An object that is not live any more. Those of a pack that has gone are not counted as it is.
  func uncountLive(_ pack: Pack, slot: Int, ordinal: Int, _ state: inout State) {
    guard !state.packs[ordinal].isGone else { return }
    let size = pack.size(slot)
    state.packs[ordinal].liveCount -= 1
    state.packs[ordinal].liveBytes -= size
    state.liveCount -= 1
    state.liveBytes -= size
  }
}

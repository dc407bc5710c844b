internal import Synchronization

/// Size limits of packs and their objects, in bytes.
package struct PackSettings: Sendable, Equatable {
  /// Objects above this size are not packed; at most 64 MiB. 0 disables packs.
  package var objectBytes = 4 << 20
  /// Maximum size of a pack.
  package var packBytes = 64 << 20
  /// Size of the first pack; later ones are a quarter of the live bytes, up to `packBytes`.
  package var smallestBytes = 1 << 20
  /// Free space kept on the file system.
  package var reserveBytes: UInt64 = 4 << 20
  /// Whether tables are sized by the average object, and files are cut to their content as soon as they are
  /// full instead of after a sync. For a directory used by one process: a cache.
  package var savesSpace = false

  /// The defaults were measured: `docs/decisions/0025-packs.md`.
  package init() {}

  /// Settings that give every object a file of its own.
  package static var none: PackSettings {
    var settings = PackSettings()
    settings.objectBytes = 0
    return settings
  }

  /// Whether an object of `count` bytes is packed.
  func takes(_ count: Int) -> Bool { objectBytes > 0 && count <= objectBytes }
}

/// Objects under 32-byte names, many to a file.
///
/// Thread safe, and safe between processes that use one directory concurrently.
///
/// Invariants:
/// - The tables of the packs are authoritative; the index in memory is derived from them and can be dropped.
/// - A pack is identified by its number: one that was closed to save descriptors is another instance once it
///   is reopened.
/// - Only the holder of the lock on byte 0 of a pack adds to it; races between uses and removals are decided
///   by the word of the entry.
/// - A pack whose sync failed is never synced again, nor added to (rule R4). One left by an earlier process
///   can be read until its live objects are copied; until then nothing that refers to them becomes durable
///   (`salvageFailedPacks`).
/// - Bytes of an object stay in place as long as they are mapped: space is reclaimed by whole files.
/// - Objects move between packs under `moving`: file locks do not separate the threads of one process.
/// - Ordinals and numbers are never reused: an ordinal held while all packs are removed (`moveToTrash`) finds
///   nothing.
/// - Lock order: `loading`, `moving`, `writing`, `state`; readers never wait for `moving` or `writing`.
package final class PackSet: Sendable {
  /// A pack as this process knows it.
  struct KnownPack {
    let number: UInt64
    /// Nil if it is not open.
    var pack: Pack?
    /// Number of indexed entries.
    var loaded = 0
    /// Nothing is added to it any more, and everything in it is durable.
    var isClosed = false
    /// This process filled it.
    var isRetired = false
    var isGone = false
    /// Its live objects are being copied to others.
    var isEvacuating = false
    /// This process added to it.
    var isOwn = false
    /// Its sync failed in an earlier process; its live objects must be copied to others.
    var needsSalvage = false
    /// Time of the monotonic clock before which it is not remapped: on a failing disk each attempt is slow.
    var nextRemapAt: UInt64 = 0
    var liveCount = 0
    var liveBytes = 0
    /// Size of its file.
    var fileBytes = 0

    /// Whether at least half of the `used` bytes of objects are live.
    func isHalfUsed(_ used: Int) -> Bool { liveBytes * 2 >= used }

    /// Upper bound of the live bytes including alignment: copying them cannot free these.
    func alignedBytes(_ used: Int) -> Int { min(liveBytes + liveCount * (PackLayout.alignment - 1), used) }
  }

  struct State {
    var packs: [KnownPack] = []
    var ordinals: [UInt64: Int] = [:]
    /// Slots by the first eight bytes of the object names: ordinal and slot.
    var slotsByPrefix: [UInt64: UInt32] = [:]
    /// Objects whose first eight bytes collide with those of another.
    var slotsByName: [BlobHash: UInt32] = [:]
    /// Live objects whose name is indexed at another slot.
    var duplicates: [BlobHash: [UInt32]] = [:]
    var openPacks = 0
    var liveCount = 0
    var liveBytes = 0
    /// Size of all files.
    var fileBytes = 0

    /// Records a new size of a pack's file.
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
    /// Average size of an object in the previous pack, including alignment; 0 if there was none.
    var meanBytes = 0
  }

  /// Maximum number of open packs: each costs a descriptor.
  static let maxOpenPacks = 192

  let files: BlobFiles
  let settings: PackSettings
  private let access: BlobAccess
  let environment: BlobEnvironment
  /// Called for each failed sync, whatever caused it: its objects never become durable (rule R4).
  let onFailedSync: @Sendable (StoreError) -> Void
  let state = LockedField(State(), rank: .packs)
  let moving = LockedField((), rank: .packMoving)
  let writing = LockedField(Writer(), rank: .packWriter)
  private let loading = LockedField(false, rank: .packLoading)
  private let isLoaded = Atomic(false)
  let useStamps = UseStamps()
  let syncs = PackSyncs()
  let space = PackSpace()

  var readOnly: Bool { access == .readOnly }
  /// Whether other processes may use the directory.
  var isShared: Bool { access != .exclusive }

  init(
    _ files: BlobFiles, settings: PackSettings, access: BlobAccess, environment: BlobEnvironment,
    onFailedSync: @escaping @Sendable (StoreError) -> Void = { _ in }
  ) {
    (self.files, self.settings, self.onFailedSync) = (files, settings, onFailedSync)
    (self.access, self.environment) = (access, environment)
  }

  /// The stamp of a use at this moment.
  func stamp() -> UInt64 { useStamps.next(at: environment.now()) }

  // MARK: Lookup

  /// The slot of an object; nil if it is missing. With `refreshing`, entries that other processes added are
  /// indexed first.
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

  /// The indexed slot of a live object.
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

  /// Live objects and their bytes, as far as indexed by this process.
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

  /// Calls `body` for each known pack that still exists.
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

  /// Reads the tables, and recovers what killed processes left; once.
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
      // Failures that can be retried do not affect readers: making the store durable retries them.
      do throws(StoreError) { try salvageFailedPacks() } catch {
        guard error.code == .diskFull || error.code == .busy else { throw error }
      }
    }
  }

  /// Registers new packs of other processes and, if `indexing`, indexes their new entries.
  func refresh(indexing: Bool = true) throws(StoreError) {
    guard try files.storage.status(files.path("packs")) != nil else { return }
    let numbers = try files.storage.list(files.path("packs")).compactMap { Pack.number($0) }
    try state.withLock { state throws(StoreError) in
      let there = Set(numbers)
      var hasOneGone = false
      for ordinal in state.packs.indices
      where !state.packs[ordinal].isGone && !there.contains(state.packs[ordinal].number) {
        // It may have been created after the listing.
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

  /// Registers a pack that was just created, or found.
  ///
  /// If another thread found it in the directory before its creator registered it, it already has an ordinal,
  /// which gets the creator's instance: that one holds the lock.
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

  /// Indexes the entries of a pack that are not yet indexed.
  func indexNewEntries(_ pack: Pack, ordinal: Int, _ state: inout State) throws(StoreError) {
    let isClosed = pack.isClosed
    // After a power failure *count* may be wrong until recovery: a read-only process relies on checksums
    // alone.
    let isUncounted = readOnly && !isClosed && !pageCacheSurvived(pack)
    let count = isUncounted ? pack.header.slots : pack.count
    var loaded = isUncounted ? 0 : count
    for slot in state.packs[ordinal].loaded..<max(count, state.packs[ordinal].loaded) {
      // Also repair the entry of a removed object: otherwise it would be reported as damaged for ever.
      guard pack.isValid(slot) || pack.repair(slot), pack.word(slot).isLive else { continue }
      try indexEntry(pack, slot: slot, ordinal: ordinal, &state)
      // A writer may appear, and continue after this entry.
      loaded = max(loaded, slot + 1)
    }
    state.packs[ordinal].loaded = max(loaded, state.packs[ordinal].loaded)
    state.packs[ordinal].isClosed = isClosed
  }

  /// Indexes one object. Of two with the same name the most recently used one is indexed: neither is removed
  /// here, because it is unknown which of them is durable.
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

  /// Whether the index refers to this slot for its object.
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
    useStamps.observe(pack.word(slot).stamp)
  }

  /// Removes an object from the live counts. Those of a removed pack are already excluded.
  func uncountLive(_ pack: Pack, slot: Int, ordinal: Int, _ state: inout State) {
    guard !state.packs[ordinal].isGone else { return }
    let size = pack.size(slot)
    state.packs[ordinal].liveCount -= 1
    state.packs[ordinal].liveBytes -= size
    state.liveCount -= 1
    state.liveBytes -= size
  }
}

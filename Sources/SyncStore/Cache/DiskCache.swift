internal import Synchronization

/// Values on the disk, of which the least recently used leave: for what can be had again. Not replicated, not a store.
/// Thread safe; all calls block, and have forms for tasks (``AsyncDiskCache``).
///
/// Values lie in packs, as small values of a store do (`schemas/packs.md`): a set is one append, a get reads in place. The
/// order of last use is exact, to the call; what is read counts as used. Nothing waits for the disk: a process that is killed
/// loses nothing, a loss of power may take the last moments. What has rotted is never given out: it is absent.
///
/// The limit of bytes is one of the disk: the files have at most as many at rest, and a fifth more while room is made. A writer
/// that is faster than that waits, and makes room itself; up to an eighth of the limit becomes free each time.
///
/// Invariants: an entry is found under the SHA-256 of its key, and holds its key; the limit of bytes holds always, the others
/// soon after they were exceeded, and after each `trim`; no reader waits for a trim longer than for 256 entries to leave.
public final class DiskCache: Sendable {
  /// What bounds a cache, and how often it is looked at.
  public struct Limits: Sendable, Equatable {
    /// At most so many values.
    public var count = Int.max
    /// At most so many bytes of values, keys and extended data, and, from 1 MiB on, of the files that they lie in. A value that has
    /// no room within it even alone leaves at once.
    public var bytes = Int.max
    /// Values that nobody has set or got for so many seconds leave with the next trim.
    public var age = Double.infinity
    /// Values leave while the file system of the cache has fewer bytes free.
    public var freeDiskBytes: UInt64 = 0
    /// Seconds between two trims; 0 for none by themselves. After a set that exceeds a limit one begins at once.
    public var trimInterval = 60.0

    /// No limits.
    public init() {}
  }

  /// What is known of a value without reading it.
  public struct Information: Sendable, Hashable {
    /// Its key.
    public let key: String
    /// Bytes of the value.
    public let valueBytes: Int
    /// Bytes that count towards `Limits.bytes`.
    public let bytes: Int
    /// What kind of value it is.
    public let type: ValueType
    /// When it was set, in milliseconds since 1970.
    public let modified: UInt64
    /// When it was set or got last, in milliseconds since 1970.
    public let accessed: UInt64
  }

  /// A value with what was put beside it.
  public struct Item: Sendable, Hashable {
    /// The bytes.
    public let value: [UInt8]
    /// What was put beside it.
    public let extendedData: [UInt8]
    /// What kind of value it is.
    public let type: ValueType

    init(value: [UInt8], extendedData: [UInt8], type: ValueType) {
      (self.value, self.extendedData, self.type) = (value, extendedData, type)
    }
  }

  /// Bytes of one value with key and extended data, at most.
  public static let entryBytes = 255 << 20
  /// Bytes of a key in UTF-8; at least 1.
  public static let keyBytes = 1024

  /// For people.
  public let name: String
  /// The directory.
  public let path: String

  let packs: PackSet
  let files: BlobFiles
  let clock: @Sendable () -> UInt64
  private let lock: any StorageFile
  private let limitsNow: LockedField<Limits>
  private let maintenance = CacheMaintenance()
  /// 0: no trim was asked for; 1: one is under way; 2: another one is to follow it.
  let trimming = Atomic(0)
  /// Held by the one thread that makes room.
  let makingRoom = LockedField(())
  private let closed = Atomic(false)

  /// The cache in the directory `path`, which is made if it is missing; its parent must exist. The same directory is the same
  /// instance as long as anybody holds it: then `limits` become those of that.
  ///
  /// - Throws: `.busy` if another process has it open; `.foreignFile` if there is something in the directory that no cache has,
  ///   a store for example: nothing was touched then.
  public static func open(at path: String, name: String? = nil, limits: Limits = Limits()) throws(StoreError)
    -> DiskCache
  {
    let environment = Environment.real()
    let path = SystemCall.absolutePath(path)
    return try live.withLock { live throws(StoreError) in
      if let cache = live[path]?.cache, !cache.closed.load(ordering: .acquiring) {
        cache.limits = limits
        return cache
      }
      let cache = try DiskCache(at: path, name: name, limits: limits, environment: environment)
      live = live.filter { $0.value.cache != nil }
      live[path] = Held(cache: cache)
      return cache
    }
  }

  private struct Held { weak var cache: DiskCache? }
  private static let live = LockedField<StringDictionary<Held>>([:])

  /// The same with the surroundings given, for tests.
  package init(
    at path: String, name: String? = nil, limits: Limits = Limits(), environment: Environment,
    packing: PackSettings? = nil
  ) throws(StoreError) {
    self.path = path
    self.name = name ?? path.unicodeScalars.split(separator: "/").last.map { String($0) } ?? "cache"
    let named = BlobFiles(storage: environment.storage, directory: path)
    try Self.requireCache(named)
    try named.prepare()
    // From here on it moves with its directory.
    files = BlobFiles(storage: try environment.storage.anchored(at: path), directory: path)
    lock = try files.storage.open("cache.lock", beneath: path, .openOrCreate)
    guard try lock.lock(byte: 0, .exclusive, wait: false) else {
      throw StoreError(
        .busy,
        "the cache is open, in another process or by another path in this one: give each its own directory",
        path: path)
    }
    var settings = packing ?? PackSettings()
    settings.savesSpace = true
    if packing == nil { settings.objectBytes = Self.entryBytes }
    lock.dropInForkedChildren()
    clock = environment.now
    packs = PackSet(
      files, settings: settings, readOnly: false, isShared: false, boot: environment.bootWord,
      clock: environment.now, random: environment.randomWord)
    limitsNow = LockedField(limits)
    packs.limitFileBytes(to: limits.bytes)
    try packs.load()
    try Self.countTrash(of: packs)
    // A process that was killed within a set has left the older value, too.
    packs.removeAllDuplicates()
    if limits.trimInterval > 0 {
      maintenance.schedule(every: limits.trimInterval) { [weak self] in _ = try? self?.trim() }
    }
    Self.emptyTrashInBackground(of: packs)
    // The limits may be lower than those of the last opening.
    if try exceeds(limits) || isNearlyFull { trimSoon() }
  }

  /// Refuses a directory with anything in it that is not of a cache: in a store's own the cache would take the packs of large
  /// values for its own, and let them leave.
  private static func requireCache(_ files: BlobFiles) throws(StoreError) {
    guard try files.storage.status(files.directory)?.kind == .directory else { return }
    // What a file system keeps at its own top is in nobody's way.
    let own = StringSet(BlobFiles.subdirectories + ["cache.lock", "lost+found"])
    for name in try files.storage.list(files.directory) where !own.contains(name) && !name.hasPrefix("trash-")
    {
      throw StoreError(
        .foreignFile, "is not of a cache: give the cache a directory of its own", path: files.path(name))
    }
  }

  deinit {
    maintenance.end()
    if !closed.load(ordering: .acquiring) { packs.close() }
  }

  /// Makes everything durable and lets the directory go. Calls after it fail with `.closed`.
  public func close() {
    guard !closed.exchange(true, ordering: .acquiringAndReleasing) else { return }
    maintenance.end()
    packs.close()
    _ = try? lock.lock(byte: 0, .none, wait: false)
  }

  func checkOpen() throws(StoreError) {
    guard !closed.load(ordering: .acquiring) else {
      throw StoreError(.closed, "the cache was closed: open it again", path: path)
    }
  }

  /// What bounds it. Lowering them makes values leave soon; the interval stays that of the opening.
  public var limits: Limits {
    get { limitsNow.withLock { $0 } }
    set {
      limitsNow.withLock { $0 = newValue }
      packs.limitFileBytes(to: newValue.bytes)
      trimSoon()
    }
  }

  // MARK: Totals

  /// How many values there are.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if its files cannot be read.
  public var count: Int { get throws(StoreError) { try packs.totals().count } }

  /// Bytes of all values, keys and extended data.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if its files cannot be read.
  public var totalBytes: Int { get throws(StoreError) { try packs.totals().bytes } }

  // MARK: Values

  /// Is there a value? It does not count as used.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func contains(_ key: String) throws(StoreError) -> Bool { try lookUp(key) != nil }

  /// The value of a key, which is the last used one then; nil if there is none.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func get(_ key: String) throws(StoreError) -> [UInt8]? { try item(key)?.value }

  /// The value of a key and what was put beside it; nil if there is none.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func item(_ key: String) throws(StoreError) -> Item? {
    try withEntry(key) { bytes, header throws(StoreError) in
      Item(
        value: [UInt8](copying: bytes.extracting(header.value..<bytes.byteCount)),
        extendedData: [UInt8](copying: bytes.extracting(header.extended..<header.value)), type: header.type)
    }
  }

  /// Works on the value of a key in place; nil if there is none. It stays as it is, whoever sets or removes it meanwhile.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; what `body` throws.
  public func withValue<Result>(
    _ key: String, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result? {
    try withEntry(key) { bytes, header throws(StoreError) in
      try body(bytes.extracting(header.value..<bytes.byteCount))
    }
  }

  /// The values of several keys; those without one are left out.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func get(_ keys: some Sequence<String>) throws(StoreError) -> StringDictionary<[UInt8]> {
    var found: StringDictionary<[UInt8]> = [:]
    for key in keys { found[key] = try get(key) }
    return found
  }

  /// Sets a key, in place of the value it had.
  ///
  /// - Parameters:
  ///   - extendedData: comes back with the value.
  ///   - type: stored with the value.
  /// - Throws: `.invalidKey` for a key of no or more than `keyBytes` bytes; `.outOfBounds` above `entryBytes`; `.diskFull`.
  ///   What was there before stays then.
  public func set(
    _ key: String, _ value: [UInt8], extendedData: [UInt8] = [], type: ValueType = .bytes
  ) throws(StoreError) {
    try checkOpen()
    let entry = try CacheEntry.encode(
      key: key, value: value, extended: extendedData, type: type, modified: clock(), path: path)
    let name = CacheEntry.name(key)
    guard PackLayout.fileBytes(for: entry.count) <= packs.fileLimit.load(ordering: .relaxed) else {
      // It would make all others leave, and then itself.
      _ = try packs.remove(name)
      return
    }
    try add(name, entry)
    let limits = limits
    let count = try packs.totals().count
    if count > limits.count, count - limits.count > limits.count / 5 {
      try makingRoom.withLock { _ throws(StoreError) in _ = try trim(toCount: limits.count) }
    } else if try exceeds(limits) || isNearlyFull {
      trimSoon()
    }
  }

  /// Makes a key leave. False if it had no value.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  @discardableResult
  public func remove(_ key: String) throws(StoreError) -> Bool {
    guard try lookUp(key) != nil else { return false }
    return try packs.remove(CacheEntry.name(key)) != nil
  }

  /// Makes several keys leave. Returns how many had a value.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  @discardableResult
  public func remove(_ keys: some Sequence<String>) throws(StoreError) -> Int {
    var count = 0
    for key in keys where try remove(key) { count += 1 }
    return count
  }

  // MARK: Information

  /// What is known of the value of a key; it does not count as used. Nil if there is none.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func information(_ key: String) throws(StoreError) -> Information? {
    guard let (pack, slot, entry) = try lookUp(key) else { return nil }
    return try Self.information(in: pack, slot: slot, entry: entry)
  }

  /// Calls `body` for each value there is, in no order, until it returns false. None counts as used.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; what `body` throws.
  public func forEach(_ body: (Information) throws(StoreError) -> Bool) throws(StoreError) {
    try checkOpen()
    var goesOn = true
    try packs.eachObject { (pack, slot, _) throws(StoreError) in
      guard goesOn, let entry = pack.entry(slot),
        let known = try Self.information(in: pack, slot: slot, entry: entry)
      else {
        return
      }
      goesOn = try body(known)
    }
  }

  private static func information(in pack: Pack, slot: Int, entry: PackEntry) throws(StoreError)
    -> Information?
  {
    let found = try pack.withBytes(entry) { bytes throws(StoreError) -> (CacheEntry.Header, String)? in
      guard let header = CacheEntry.Header(bytes), let key = header.key(in: bytes) else { return nil }
      return (header, key)
    }
    guard let (header, key) = found else { return nil }
    return Information(
      key: key, valueBytes: entry.size - header.value, bytes: entry.size, type: header.type,
      modified: header.modified, accessed: pack.word(slot).milliseconds)
  }

  // MARK: Finding

  private func lookUp(_ key: String) throws(StoreError) -> (Pack, Int, PackEntry)? {
    try checkOpen()
    guard let (pack, slot) = try packs.lookUp(CacheEntry.name(key), refreshing: false),
      let entry = pack.entry(slot)
    else { return nil }
    return (pack, slot, entry)
  }

  /// Works on an entry that is whole and holds its key. One that is not leaves.
  private func withEntry<Result>(
    _ key: String, _ body: (RawSpan, CacheEntry.Header) throws(StoreError) -> Result
  ) throws(StoreError) -> Result? {
    guard let (pack, slot, entry) = try lookUp(key) else { return nil }
    var isDamaged = false
    var result: Result?
    do throws(StoreError) {
      result = try pack.withBytes(entry) { bytes throws(StoreError) -> Result? in
        guard XXH3.hash64(bytes, seed: 0) == entry.checksum, let header = CacheEntry.Header(bytes),
          header.key(in: bytes) == key
        else {
          isDamaged = true
          return nil
        }
        return try body(bytes, header)
      }
    } catch  where error.code == .damaged && error.path == pack.file.path {
      isDamaged = true
    }
    if isDamaged {
      try packs.remove(entry, in: pack)
    } else {
      packs.recordUse(pack, slot)
    }
    return result
  }
}

internal import Synchronization

/// A disk cache with least-recently-used eviction, for values that can be obtained again. Not replicated, not
/// a store.
///
/// Thread safe; all calls block. Asynchronous code makes them inside `run` (``BlockingCalls``).
///
/// Values are stored in packs, like small values of a store (`schemas/packs.md`): a set is one append, a get
/// reads in place. The order of last use is exact to the call; reads count as uses. No call waits for a sync:
/// a killed process loses nothing, a power failure may lose the last moments. Corrupt values are never
/// returned: they count as missing.
///
/// The limit of bytes is a limit of the disk: at rest the files have at most that many, and a fifth more
/// while room is made. A writer that is faster than that waits, and makes room itself, up to an eighth of the
/// limit each time.
///
/// Invariants: an entry is found under the SHA-256 of its key, and contains its key; the limit of bytes holds
/// at all times, the others soon after they were exceeded, and after each `trim`; no reader waits for a trim
/// longer than it takes to evict 256 entries.
public final class DiskCache: Sendable {
  /// The limits of a cache, and how often they are checked.
  public struct Limits: Sendable, Equatable {
    /// Maximum number of values.
    public var count = Int.max
    /// Maximum bytes of values, keys and extended data and, from 1 MiB on, of the files that hold them. A
    /// value too large to fit even alone is evicted at once.
    public var bytes = Int.max
    /// Values not set or read for this many seconds are evicted by the next trim.
    public var age = Double.infinity
    /// Values are evicted while the file system of the cache has fewer bytes free than this.
    public var freeDiskBytes: UInt64 = 0
    /// Seconds between two trims; 0 for no automatic ones. A set that exceeds a limit starts one at once.
    public var trimInterval = 60.0

    /// No limits.
    public init() {}
  }

  /// Metadata of a value, available without reading it.
  public struct Information: Sendable, Hashable {
    /// Its key.
    public let key: String
    /// Size of the value in bytes.
    public let valueBytes: Int
    /// Bytes that count towards `Limits.bytes`.
    public let bytes: Int
    /// Type of the value.
    public let type: ValueType
    /// When it was set, in milliseconds since 1970.
    public let modified: UInt64
    /// When it was last set or read, in milliseconds since 1970.
    public let accessed: UInt64
  }

  /// A value with its extended data.
  public struct Item: Sendable, Hashable {
    /// The bytes.
    public let value: [UInt8]
    /// The extended data stored with it.
    public let extendedData: [UInt8]
    /// Type of the value.
    public let type: ValueType

    init(value: [UInt8], extendedData: [UInt8], type: ValueType) {
      (self.value, self.extendedData, self.type) = (value, extendedData, type)
    }
  }

  /// Maximum bytes of one value with key and extended data.
  public static let entryBytes = 255 << 20
  /// Maximum bytes of a key in UTF-8; the minimum is 1.
  public static let keyBytes = 1024

  /// Name for messages.
  public let name: String
  /// The directory.
  public let path: String

  let packs: PackSet
  let files: BlobFiles
  let clock: @Sendable () -> UInt64
  private let lock: any StorageFile
  private let limitsNow: LockedField<Limits>
  private let maintenance = CacheMaintenance()
  /// 0: no trim requested; 1: one is running; 2: another one follows it.
  let trimming = Atomic(0)
  /// Held by the thread that makes room.
  let makingRoom = LockedField((), rank: .diskCache)
  private let closed = Atomic(false)

  /// Opens the cache in the directory `path`, which is created if it is missing; its parent must exist.
  ///
  /// While an instance for the same directory is alive it is returned again, and gets the new `limits`.
  ///
  /// - Throws: `.busy` if another process has it open; `.foreignFile` if the directory contains anything that
  ///   does not belong to a cache, for example a store: nothing is touched then.
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
  private static let live = LockedField<StringDictionary<Held>>([:], rank: .handle)

  /// Opens the cache in the given environment, for tests.
  package init(
    at path: String, name: String? = nil, limits: Limits = Limits(), environment: Environment,
    packing: PackSettings? = nil
  ) throws(StoreError) {
    self.path = path
    self.name = name ?? path.unicodeScalars.split(separator: "/").last.map { String($0) } ?? "cache"
    let named = BlobFiles(storage: environment.storage, directory: path)
    try Self.requireCache(named)
    try named.prepare()
    // From here on paths follow the directory if it is renamed.
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
      files, settings: settings, access: .exclusive, environment: BlobEnvironment(environment))
    limitsNow = LockedField(limits)
    packs.limitFileBytes(to: limits.bytes)
    try packs.load()
    try Self.countTrash(of: packs)
    // A process killed within a set may have left the older value, too.
    packs.removeAllDuplicates()
    if limits.trimInterval > 0 {
      maintenance.schedule(every: limits.trimInterval) { [weak self] in _ = try? self?.trim() }
    }
    Self.emptyTrashInBackground(of: packs)
    // The limits may be lower than at the last opening.
    if try exceeds(limits) || isNearlyFull { trimSoon() }
  }

  /// Refuses a directory with files that do not belong to a cache: in a store's blob directory the cache
  /// would take the packs of large values for its own, and evict them.
  private static func requireCache(_ files: BlobFiles) throws(StoreError) {
    guard try files.storage.status(files.directory)?.kind == .directory else { return }
    // Directories that a file system keeps at its root are tolerated.
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

  /// Makes everything durable and releases the directory. Later calls fail with `.closed`.
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

  /// The limits. Lowering them evicts values soon; the trim interval stays that of the opening.
  public var limits: Limits {
    get { limitsNow.withLock { $0 } }
    set {
      limitsNow.withLock { $0 = newValue }
      packs.limitFileBytes(to: newValue.bytes)
      trimSoon()
    }
  }

  // MARK: Totals

  /// Number of values.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if its files cannot be read.
  public var count: Int { get throws(StoreError) { try packs.totals().count } }

  /// Bytes of all values, keys and extended data.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if its files cannot be read.
  public var totalBytes: Int { get throws(StoreError) { try packs.totals().bytes } }

  // MARK: Values

  /// Whether the key has a value. Does not count as a use.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func contains(_ key: String) throws(StoreError) -> Bool { try lookUp(key) != nil }

  /// The value of a key; nil if there is none. Makes it the most recently used one.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func get(_ key: String) throws(StoreError) -> [UInt8]? { try item(key)?.value }

  /// The value of a key with its extended data; nil if there is none.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func item(_ key: String) throws(StoreError) -> Item? {
    try withEntry(key) { bytes, header throws(StoreError) in
      Item(
        value: [UInt8](copying: bytes.extracting(header.value..<bytes.byteCount)),
        extendedData: [UInt8](copying: bytes.extracting(header.extended..<header.value)), type: header.type)
    }
  }

  /// Calls `body` with the value of a key in place; nil if there is none. Concurrent sets and removals do not
  /// affect it.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; errors of `body`.
  public func withValue<Result>(
    _ key: String, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result? {
    try withEntry(key) { bytes, header throws(StoreError) in
      try body(bytes.extracting(header.value..<bytes.byteCount))
    }
  }

  /// The values of several keys; keys without a value are omitted.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func get(_ keys: some Sequence<String>) throws(StoreError) -> StringDictionary<[UInt8]> {
    var found: StringDictionary<[UInt8]> = [:]
    for key in keys { found[key] = try get(key) }
    return found
  }

  /// Sets a key, replacing its value.
  ///
  /// - Parameters:
  ///   - extendedData: Returned with the value.
  ///   - type: Stored with the value.
  /// - Throws: `.invalidKey` for a key of no or more than `keyBytes` bytes; `.outOfBounds` above
  ///   `entryBytes`; `.diskFull`. The previous value stays then.
  public func set(
    _ key: String, _ value: [UInt8], extendedData: [UInt8] = [], type: ValueType = .bytes
  ) throws(StoreError) {
    try checkOpen()
    let entry = try CacheEntry.encode(
      key: key, value: value, extended: extendedData, type: type, modified: clock(), path: path)
    let name = CacheEntry.name(key)
    guard PackLayout.fileBytes(for: entry.count) <= packs.space.limit else {
      // It would evict all other values, and then itself.
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

  /// Removes a key. False if it had no value.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  @discardableResult
  public func remove(_ key: String) throws(StoreError) -> Bool {
    guard try lookUp(key) != nil else { return false }
    return try packs.remove(CacheEntry.name(key)) != nil
  }

  /// Removes several keys. Returns how many had a value.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  @discardableResult
  public func remove(_ keys: some Sequence<String>) throws(StoreError) -> Int {
    var count = 0
    for key in keys where try remove(key) { count += 1 }
    return count
  }

  // MARK: Information

  /// Metadata of the value of a key; nil if there is none. Does not count as a use.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read.
  public func information(_ key: String) throws(StoreError) -> Information? {
    guard let (pack, slot, entry) = try lookUp(key) else { return nil }
    return try Self.information(in: pack, slot: slot, entry: entry)
  }

  /// Calls `body` for each value, in no particular order, until it returns false. Does not count as a use.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; errors of `body`.
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

  // MARK: Lookup

  private func lookUp(_ key: String) throws(StoreError) -> (Pack, Int, PackEntry)? {
    try checkOpen()
    guard let (pack, slot) = try packs.lookUp(CacheEntry.name(key), refreshing: false),
      let entry = pack.entry(slot)
    else { return nil }
    return (pack, slot, entry)
  }

  /// Calls `body` with an entry that is intact and contains its key. A corrupt one is removed.
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

extension DiskCache: BlockingCalls {}

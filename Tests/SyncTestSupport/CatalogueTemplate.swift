import SyncStore

/// The files of a small on-disk store with large values of each kind, and the invariants that hold for any
/// catalogue.
struct CatalogueTemplate {
  /// A file without its trailing zeros.
  private struct Content {
    var bytes: [UInt8]
    var size: Int
  }

  /// Values to put again, and a recipe for one that can be assembled from existing ones.
  private struct Samples {
    var inFiles: [[UInt8]] = []
    var like: [UInt8] = []
    var recipe = BlobRecipe(offset: 0, chunks: [])
    /// References to `like` and to a value that was never received.
    var references: [BlobReference] = []
  }

  private let home = TemporaryDirectory(inMemory: true)
  private let disk = DiskStorage()
  private let clock = Locked<UInt64>(CatalogueTemplate.start)
  private var files: [String: Content] = [:]
  private var written: [Key: [UInt8]] = [:]
  private var samples = Samples()
  /// Unreferenced objects in files.
  private var garbage: [BlobHash] = []

  /// The catalogue after a clean close.
  private(set) var catalogue: [UInt8] = []
  /// The catalogue of a killed process, and its write-ahead log.
  private(set) var live: (main: [UInt8], log: [UInt8]) = ([], [])
  /// All objects in files, and some absent ones.
  private(set) var objects: [BlobHash] = []

  private static let start: UInt64 = 1_700_000_000_000
  private static let configuration = Configuration(
    durability: .relaxed, blobThreshold: 64, segmentBytes: 64 << 10)
  private static let names = ["catalogue.sqlite", "catalogue.sqlite-wal"]

  private var path: String { home.path + "/store" }
  private var directory: String { path + "/blobs" }
  /// Path of the catalogue.
  var cataloguePath: String { directory + "/" + Self.names[0] }

  init() throws {
    let store = try Store.create(
      at: path, name: nil, id: nil, configuration: Self.configuration, environment: environment)
    func put(_ key: Key, _ value: [UInt8]) throws {
      written[key] = value
      try store.put(key, value)
    }
    let tier = try inFiles()
    samples.inFiles = [Self.pattern(500, 4), Self.pattern(4096, 5), Self.pattern(70_000, 6)]
    // Before the store's first put: objects that already lie in a file are not packed.
    for (number, value) in samples.inFiles.enumerated() {
      objects.append(try tier.put(bytes: value, durable: number != 1).hash)
    }
    for (number, value) in samples.inFiles.enumerated() { try put(Key("filed \(number)"), value) }
    try put("small", [1, 2, 3])
    try put("packed", Self.pattern(300, 1))
    try put("packed, too", Self.pattern(900, 2))
    try store.put("garbage", Self.pattern(400, 3))
    try store.delete("garbage")
    for number in 7...8 { garbage.append(try tier.put(bytes: Self.pattern(600, number), durable: true).hash) }
    objects += garbage
    samples.like = samples.inFiles[2] + Self.pattern(100, 9)
    samples.references = [
      try tier.put(bytes: samples.like, durable: false),
      try tier.put(bytes: Self.pattern(700, 10), durable: false),
    ]
    samples.recipe = try tier.recipe(
      of: samples.references[0], from: 0, bytes: UInt64(samples.like.count))
    for reference in samples.references { try tier.remove(reference.hash) }
    // An unfinished transfer.
    try tier.append([1, 2, 3], to: samples.references[1].hash, at: 0)
    objects += samples.references.map(\.hash)
    try tier.catalogue.recordHolders(objects.map { ($0, [UInt8](repeating: 1, count: 32)) }, at: Self.start)
    let count = 3 + objects.count - samples.references.count
    try Self.expect(store.blobs.totals().count == UInt64(count), "an object lies in a file and in a pack")
    live = (try read(Self.names[0]), try read(Self.names[1]))
    tier.close()
    try store.close()
    try noteChunks()
    catalogue = try read(Self.names[0])
    try keep(path)
  }

  static func pattern(_ count: Int, _ seed: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: ($0 &* 0x9E37_79B9 &+ seed &* 0x85EB_CA6B) >> 16) }
  }

  /// Records correct chunk hints, so that `damage` can corrupt them.
  private func noteChunks() throws {
    let database = try SQLiteConnection(path: cataloguePath)
    var offset: UInt64 = 0
    for chunk in samples.recipe.chunks {
      let values: [SQLiteValue] = [
        .bytes(chunk.name), .bytes(objects[2].bytes), .integer(Int64(offset)), .integer(Int64(chunk.count)),
      ]
      try database.run("INSERT INTO chunk VALUES (?, ?, ?, ?)", values)
      offset += UInt64(chunk.count)
    }
    try database.run("INSERT INTO cut VALUES (?)", [.bytes(objects[2].bytes)])
    try database.run("PRAGMA wal_checkpoint(TRUNCATE)")
  }

  private var environment: Environment {
    let numbers = Locked(SplitMix64(seed: 1))
    var environment = Environment(
      storage: disk, now: { [clock] in clock.withLock { $0 } },
      random: { count in
        numbers.withLock { numbers in (0..<count).map { _ in UInt8.random(in: 0...255, using: &numbers) } }
      }, machine: "one", boot: "boot 1")
    environment.compactionMode = .onRequest
    environment.preallocatesSegments = false
    return environment
  }

  /// The blob tier with packing disabled.
  private func inFiles() throws -> BlobStore {
    try BlobStore.open(
      directory: directory, storage: disk, packing: .none,
      environment: BlobEnvironment(now: { [clock] in clock.withLock { $0 } }))
  }

  // MARK: Files

  private func read(_ name: String) throws -> [UInt8] {
    try disk.contents(of: directory + "/" + name, limit: 1 << 24) ?? []
  }

  private mutating func keep(_ directory: String) throws {
    for name in try disk.list(directory) {
      let path = directory + "/" + name
      guard let status = try disk.status(path) else { continue }
      if status.kind == .directory {
        try keep(path)
      } else {
        var bytes = try disk.open(path, .readOnly).read(status.size, at: 0)
        bytes.removeLast(bytes.count - ((bytes.lastIndex { $0 != 0 } ?? -1) + 1))
        files[path] = Content(bytes: bytes, size: status.size)
      }
    }
  }

  func restore() throws {
    clock.withLock { $0 = Self.start + 1000 }
    try disk.removeFiles(below: path) { files[$0] == nil }
    for (path, content) in files {
      let file = try disk.open(path, .openOrCreate)
      try file.resize(to: 0)
      try file.write(content.bytes, at: 0)
      try file.resize(to: content.size)
    }
  }

  /// Replaces the catalogue.
  func install(_ main: [UInt8], log: [UInt8]? = nil) throws {
    for (name, bytes) in zip(Self.names, [main, log]) {
      _ = try disk.remove(directory + "/" + name)
      guard let bytes else { continue }
      try disk.open(directory + "/" + name, .create).write(bytes, at: 0)
    }
  }

  // MARK: Invariants

  private static func expect(_ holds: Bool, _ otherwise: @autoclosure () -> String) {
    // `fatalError`, because a precondition's message is missing from optimised builds.
    guard holds else { fatalError(otherwise()) }
  }

  func look(evicting choice: UInt8) throws {
    try expectReader()
    let store = try Store.open(
      at: path, configuration: Self.configuration, environment: environment)
    expectAll(of: store)
    try use(try inFiles())
    let isNewer = try trim(store)
    expectAll(of: store)
    try verify(store)
    try expectEviction(store, choice, isNewer)
    try store.close()
    let again = try Store.open(at: path, configuration: Self.configuration, environment: environment)
    try again.blobs.rebuildCatalogue()
    clock.withLock { $0 += 10_000 }
    _ = try again.trim(graceSeconds: 1)
    try Self.expect(garbage.allSatisfy { try !again.blobs.has($0) }, "what nothing refers to stays")
    try verify(again)
    try again.close()
  }

  /// A read-only open changes nothing and creates no file.
  private func expectReader() throws {
    let before = try disk.list(directory).sorted()
    let catalogue = try read(Self.names[0])
    let tier = try BlobStore.open(directory: directory, storage: disk, access: .readOnly)
    _ = tier.holders(of: objects[0])
    tier.close()
    let after = try disk.list(directory).sorted()
    Self.expect(before == after, "who only reads has made or removed files: \(before), \(after)")
    let now = try read(Self.names[0])
    Self.expect(now == catalogue, "who only reads has changed the catalogue, now of \(now.count) bytes")
  }

  private func expectAll(of store: Store, evicted: Int = 0) {
    var absent = 0
    for (key, value) in written {
      do {
        let found = try store.get(key)?.bytes
        Self.expect(found == value, "\(key) has another value, or none")
      } catch {
        Self.expect(error.code == .blobUnavailable, "\(key): \(error)")
        absent += 1
      }
    }
    Self.expect(absent <= evicted, "\(absent) values are not here any more")
  }

  /// A failing catalogue fails no read and no put.
  private func use(_ tier: BlobStore) throws {
    for (number, value) in samples.inFiles.enumerated() {
      let reference = try tier.put(bytes: value, durable: number == 0)
      try tier.makeDurable([reference])
      _ = tier.holders(of: reference.hash)
      try Self.expect(tier.read(reference) == value, "an object is another")
    }
    let value = Self.pattern(800, 11)
    let new = try tier.put(bytes: value, durable: true)
    try Self.expect(tier.read(new) == value, "a new object is another")
    let wasMadeDurable: Void? = try? tier.makeDurable([samples.references[1]])
    Self.expect(wasMadeDurable == nil, "an object that is not here was made durable")
    _ = try tier.mayShareChunks(size: 10 << 20)
    let match = try tier.match(samples.recipe)
    let like = samples.references[0]
    if try tier.assemble(like.hash, match, upTo: match.end) == like.size {
      try tier.complete(like, durable: false)
      try Self.expect(tier.read(like) == samples.like, "what was made of others is another")
    }
    let problems = try tier.verify()
    Self.expect(problems.allSatisfy { $0.hash == nil }, "objects are called damaged: \(problems)")
    tier.close()
  }

  /// Returns true if the catalogue has a newer format: trimming then leaves it and the objects that depend on
  /// it alone.
  private func trim(_ store: Store) throws -> Bool {
    clock.withLock { $0 += 10_000 }
    do { _ = try store.trim(graceSeconds: 1) } catch {
      guard error.code == .newerFormat else { throw error }
      return true
    }
    return false
  }

  private func verify(_ store: Store) throws {
    let report = try store.verify()
    let others = report.damage.filter { !$0.hasPrefix("blobs/catalogue.sqlite: ") }
    Self.expect(others.isEmpty, "what is not the catalogue is called damaged: \(others)")
    let found: [String]
    do { found = try store.blobs.catalogue.check() } catch {
      guard error.code == .newerFormat else { throw error }
      return
    }
    Self.expect(found.isEmpty, "the catalogue is damaged still: \(found)")
  }

  /// Evicts the objects that other members are said to hold, and no others.
  private func expectEviction(_ store: Store, _ choice: UInt8, _ isNewer: Bool) throws {
    var limits = BlobLimits()
    limits.count = 0
    let turn: EvictionPass
    do {
      guard let begun = try store.beginEviction(limits) else { preconditionFailure("no other pass runs") }
      turn = begun
    } catch {
      guard isNewer, error.code == .newerFormat else { throw error }
      return
    }
    let holder = [UInt8](repeating: 2, count: 32)
    while true {
      let candidates = try turn.next()
      if candidates.isEmpty { break }
      try turn.evict(
        candidates, heldBy: candidates.indices.map { choice >> ($0 % 8) & 1 == 1 ? [holder] : [] })
    }
    expectAll(of: store, evicted: turn.end().evicted)
  }
}

extension Storage {
  /// Removes the matching files in a directory and its subdirectories.
  package func removeFiles(below directory: String, where isDoomed: (String) -> Bool) throws {
    for name in try list(directory) {
      let path = directory + "/" + name
      if try status(path)?.kind == .directory {
        try removeFiles(below: path, where: isDoomed)
      } else if isDoomed(path) {
        _ = try remove(path)
      }
    }
  }
}

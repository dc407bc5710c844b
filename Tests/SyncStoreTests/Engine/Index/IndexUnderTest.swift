import SyncTestSupport

@testable import SyncStore

/// An index in simulated storage, and its expected content.
struct IndexUnderTest {
  static let path = "/index"
  static let store = StoreID(high: 1, low: 2)
  static let secret = [UInt8](1...16)
  static let boot: UInt64 = 77
  static let identity = IndexIdentity(store: store, boot: boot, secret: secret)

  let storage: SimulatedStorage
  var directory: HashIndex
  /// Hash → record ref.
  var expected: [UInt64: UInt64] = [:]

  /// A new index with a name of its own.
  init(
    storage: SimulatedStorage = SimulatedStorage(), expected count: Int = 0, maximumDepth: Int = 22
  ) throws {
    self.storage = storage
    directory = try HashIndex.create(
      at: Self.path, storage, identity: Self.identity, expected: count, maximumDepth: maximumDepth)
    try directory.install(at: Self.path, storage)
  }

  /// A pseudorandom hash.
  static func hash(_ number: Int) -> UInt64 {
    var random = SplitMix64(seed: UInt64(number))
    return random.next()
  }

  mutating func insert(_ hash: UInt64, _ place: UInt64) throws {
    try directory.insert(hash, place)
    expected[hash] = place
  }

  mutating func remove(_ hash: UInt64) throws -> Bool {
    guard let place = expected.removeValue(forKey: hash) else { return false }
    return try directory.remove(hash, place)
  }

  /// Whether it has exactly the expected content. Hashes are those of different keys.
  func isAsExpected() throws -> Bool { try Self.holds(directory, expected) }

  static func holds(_ directory: HashIndex, _ expected: [UInt64: UInt64]) throws -> Bool {
    try directory.verify()
    var places: Set<UInt64> = []
    try directory.forEachRef { places.insert($0) }
    guard try directory.count == expected.count, places == Set(expected.values) else { return false }
    for (hash, place) in expected where try directory.find(hash, { $0 == place }) != place { return false }
    return true
  }

  /// Opens the file as another process.
  func reopen(boot: UInt64 = boot, writable: Bool = true) throws -> HashIndex.OpenResult {
    try HashIndex.open(at: Self.path, storage, store: Self.store, boot: boot, writable: writable)
  }

  /// Changes a word of the header.
  func write(_ word: UInt64, at offset: Int) throws {
    var writer = ByteWriter()
    writer.write(word)
    try storage.open(Self.path, .readWrite).write(writer.bytes, at: offset)
  }

  /// The bytes of the file.
  func image() throws -> [UInt8] {
    let file = try storage.open(Self.path, .readOnly)
    return try file.read(file.status().size, at: 0)
  }

  /// Replaces the bytes of the file by an earlier image.
  func restore(_ image: [UInt8]) throws {
    let file = try storage.open(Self.path, .readWrite)
    try file.resize(to: image.count)
    try file.write(image, at: 0)
  }
}

extension HashIndex.OpenResult {
  var trusted: HashIndex? { if case .trusted(let directory) = self { directory } else { nil } }
  var reason: String? { if case .distrusted(let reason) = self { reason } else { nil } }
}

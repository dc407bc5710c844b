import SyncTestSupport
import Testing

@testable import SyncStore

/// One flipped bit, or a truncation, in files that exist only on a real disk: the catalogue of large values,
/// after a clean close and with the log left by a killed process, and large values in separate files.
///
/// `DAMAGE_ALL=1` (`make damage`) tries every bit of every used byte (a sample for a value of several
/// megabytes), and a thousand lengths of each file; otherwise a part.
@Suite("A small store on disk with large values in files")
struct DiskDamageTests {
  /// The files of a store, its content, and the location of the part to damage.
  private final class Sample {
    private let home = TemporaryDirectory(inMemory: true)
    private let disk = DiskStorage()
    private let clock = Locked<UInt64>(Sample.start)
    private(set) var files: [String: [UInt8]] = [:]
    private var values: [Key: [UInt8]] = [:]
    /// The key whose value is the only content of a file.
    private(set) var owners: [String: Key] = [:]
    private var touched = ""

    private static let start: UInt64 = 1_700_000_000_000
    private static let configuration = Configuration(
      durability: .relaxed, blobThreshold: 64, segmentBytes: 64 << 10)
    /// Acceptable error codes for damage.
    private static let refusals: Set<StoreError.Code> = [.damaged, .blobUnavailable]

    private var path: String { home.path + "/store" }
    var catalogue: String { path + "/blobs/catalogue.sqlite" }
    var log: String { catalogue + "-wal" }

    private var environment: Environment {
      var environment = Environment(
        storage: disk, now: { [clock] in clock.withLock { $0 } }, random: { SecureRandom.bytes($0) },
        machine: "one", boot: "boot 1")
      environment.compactionMode = .onRequest
      environment.preallocatesSegments = false
      return environment
    }

    private func open() throws(StoreError) -> Store {
      try Store.open(at: path, configuration: Self.configuration, environment: environment)
    }

    /// With `isKilled` the files are those of a process that still runs.
    init(isKilled: Bool) throws {
      let store = try Store.create(
        at: path, name: nil, id: nil, configuration: Self.configuration, environment: environment)
      // Small enough to try all bits of each byte: it is stored in a file like one above the limit of packs,
      // which also exists.
      let (small, large) = (pattern(600, seed: 1), [UInt8](repeating: 0xB7, count: (4 << 20) + 1))
      let tier = try BlobStore.open(directory: path + "/blobs", storage: disk, packing: .none)
      let object = try tier.put(bytes: small, durable: true)
      tier.close()
      for (name, value) in [("filed", small), ("large", large), ("packed", pattern(300, seed: 3))] {
        values[try Key(name)] = value
        try store.put(Key(name), value)
      }
      values["inline"] = [1, 2, 3]
      try store.put("inline", [1, 2, 3])
      try store.sync()
      if !isKilled { try store.close() }
      try keep(path)
      if isKilled { try store.close() }
      for (path, bytes) in files where path.contains("/objects/") {
        owners[path] = bytes.count == small.count ? "filed" : "large"
      }
      try #require(owners.count == 2 && files.keys.contains { $0.hasSuffix("\(object.hash)") })
    }

    private func keep(_ directory: String) throws {
      for name in try disk.list(directory) {
        let path = directory + "/" + name
        if try disk.status(path)?.kind == .directory {
          try keep(path)
        } else {
          files[path] = try disk.contents(of: path, limit: 1 << 24)
        }
      }
    }

    /// Restores all files, under their inodes where those still exist.
    func restore() throws {
      clock.withLock { $0 = Self.start + 1000 }
      try disk.removeFiles(below: path) { files[$0] == nil }
      for (path, content) in files {
        // The large one is rewritten only where it was touched.
        if owners[path] == "large", path != touched, try disk.status(path)?.size == content.count { continue }
        let file = try disk.open(path, .openOrCreate)
        try file.resize(to: 0)
        try file.write(content, at: 0)
      }
    }

    func change(_ path: String, _ body: (any StorageFile) throws -> Void) throws {
      touched = path
      try body(try disk.open(path, .readWrite))
    }

    /// Every value is right, except that of the damaged file, which is right or reported as damaged; also
    /// after the sweep of unreferenced files by the catalogue. Putting it again restores it.
    func look(_ damaged: String, _ place: @autoclosure () -> String) throws {
      let store = try open()
      expectAll(of: store, but: owners[damaged], place())
      clock.withLock { $0 += 10_000 }
      do throws(StoreError) { _ = try store.trim(graceSeconds: 1) } catch {
        // A catalogue that claims a later version is left alone.
        #expect(error.code == .newerFormat && owners[damaged] == nil, "\(place()): \(error)")
      }
      expectAll(of: store, but: owners[damaged], place())
      let name =
        owners[damaged] == nil ? "catalogue.sqlite" : String(damaged.split(separator: "/").last ?? "")
      let others = try store.verify().damage.filter { !$0.contains(name) }
      #expect(others.isEmpty, "\(place()): \(others)")
      if let key = owners[damaged], let value = values[key] { try store.put(key, value) }
      expectAll(of: store, but: nil, place())
      try store.close()
    }

    private func expectAll(of store: Store, but owner: Key?, _ place: @autoclosure () -> String) {
      for (key, value) in values {
        do throws(StoreError) {
          // Comparing millions of bytes one by one is slow in a debug build.
          let found = try store.get(key)?.bytes ?? []
          let isRight =
            found.count == value.count && XXH3.hash64(found, seed: 0) == XXH3.hash64(value, seed: 0)
          #expect(isRight, "\(place()): \(key) is wrong")
        } catch {
          #expect(key == owner && Self.refusals.contains(error.code), "\(place()): \(key): \(error)")
        }
      }
    }
  }

  /// Bits of a file to try: all used ones, or one of several.
  private static func step(_ sample: Sample, _ path: String) -> Int {
    guard EveryFileDamageTests.all else { return sample.owners[path] == "large" ? 9_999_991 : 997 }
    return sample.owners[path] == "large" ? 99_991 : 1
  }

  private static func files(_ sample: Sample, _ isKilled: Bool) -> [String] {
    isKilled ? [sample.catalogue, sample.log] : [sample.catalogue] + sample.owners.keys.sorted()
  }

  @Test(
    "never gives a wrong value, and loses no other one, whichever bit is flipped (F37, F43, F44)",
    arguments: [false, true])
  func everyBit(isKilled: Bool) throws {
    let sample = try Sample(isKilled: isKilled)
    var (count, tried) = (0, 0)
    for path in Self.files(sample, isKilled) {
      let (bytes, step) = (try #require(sample.files[path]), Self.step(sample, path))
      for offset in bytes.indices
      where bytes[max(0, offset - 8)..<min(offset + 8, bytes.count)].contains(where: { $0 != 0 }) {
        for bit in 0..<8 {
          count += 1
          guard count.isMultiple(of: step) else { continue }
          tried += 1
          try sample.restore()
          try sample.change(path) { try $0.write([bytes[offset] ^ 1 << UInt8(bit)], at: offset) }
          try sample.look(path, "\(path), byte \(offset), bit \(bit)")
        }
      }
    }
    #expect(tried > 10)
  }

  @Test(
    "never gives a wrong value, and loses no other one, wherever a file is truncated (F19, F43, F44)",
    arguments: [false, true])
  func everyLength(isKilled: Bool) throws {
    let sample = try Sample(isKilled: isKilled)
    for path in Self.files(sample, isKilled) {
      let count = try #require(sample.files[path]).count
      let parts = EveryFileDamageTests.all ? (sample.owners[path] == "large" ? 100 : 1000) : 4
      for size in stride(from: 0, to: count, by: max(1, count / parts)) {
        try sample.restore()
        try sample.change(path) { try $0.resize(to: size) }
        try sample.look(path, "\(path) cut to \(size)")
      }
    }
  }
}

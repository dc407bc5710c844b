import Glibc
import SyncStore
import SyncTestSupport
import Testing

/// One flipped bit, or a truncation, in any file of a small store, not only in the journal.
///
/// `DAMAGE_ALL=1` (`make damage`) tries every bit of every used byte and every length; otherwise a part.
@Suite("Any file of a small store")
struct EveryFileDamageTests {
  static let all = unsafe getenv("DAMAGE_ALL") != nil

  /// The files of a store, its content, and how its process ended.
  struct Sample {
    let host: SimulatedHost
    let files: [String: [UInt8]]
    let values: [Key: [UInt8]]
    let actor: ActorID

    init(sealed: Bool, closed: Bool) throws {
      host = SimulatedHost(encrypted: sealed)
      let store = try Store.create(on: host, configuration: Self.configuration)
      var values: [Key: [UInt8]] = [:]
      for number in 0..<12 {
        let key = try Key("key \(number)")
        values[key] = Array("value \(number), first".utf8) + [UInt8](repeating: 1, count: number * 30)
        try store.put(key, values[key] ?? [])
      }
      try DamageTests.overwriteSome(of: &values, in: store)
      let large = [UInt8](repeating: 0xB7, count: 3000)
      for number in 0..<2 {
        values[try Key("large \(number)")] = [UInt8(number)] + large
        try store.put(Key("large \(number)"), [UInt8(number)] + large)
      }
      // Nothing later vouches for the last append: damage there is indistinguishable from a torn tail.
      try store.put("last", "of all")
      actor = try store.actor
      if closed { try store.close() }
      host.killProcesses()
      files = try host.storage.files(below: "/store")
      self.values = values
    }

    static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)

    /// Non-empty files, by name.
    var names: [String] {
      files.filter { $0.value.contains { $0 != 0 } }.keys.sorted()
    }

    /// Opens it in its current state: every value is right, or the damage is reported. Restores all files.
    func look(mode: Configuration.Mode, _ place: @autoclosure () -> String) throws {
      defer {
        host.killProcesses()
        host.storage.free = nil
      }
      var configuration = Self.configuration
      configuration.mode = mode
      let store: Store
      do { store = try Store.open(on: host, configuration: configuration) } catch {
        #expect(Self.refusals.contains(error.code), "\(place()): \(error)")
        return
      }
      for (key, value) in values {
        do throws(StoreError) {
          let isRight = try store.get(key)?.bytes == value
          #expect(isRight, "\(place()): \(key) is wrong")
        } catch {
          #expect(Self.refusals.contains(error.code), "\(place()): \(key): \(error)")
        }
      }
      do throws(StoreError) {
        let deleted = try store.get("key 11")
        #expect(deleted == nil, "\(place()): what was deleted is back")
      } catch {
        #expect(Self.refusals.contains(error.code), "\(place()): \(error)")
      }
      do throws(StoreError) {
        let last = try store.text("last")
        let now = try store.actor
        let isCut = last == nil && (mode == .readOnly || now != actor)
        #expect(last == "of all" || isCut, "\(place()): the last write is gone without a word")
      } catch {
        #expect(Self.refusals.contains(error.code), "\(place()): \(error)")
      }
    }

    /// Acceptable error codes for damage.
    static let refusals: Set<StoreError.Code> = [
      .damaged, .foreignFile, .newerFormat, .notAStore, .wrongKey, .keyRequired, .notEncrypted, .outOfBounds,
      .blobUnavailable,
    ]

    func restore() throws {
      for path in try host.storage.files(below: "/store").keys.sorted() where files[path] == nil {
        _ = try host.storage.remove(path)
      }
      try host.storage.restore(files)
      // The simulated disk would keep each file ever made until the next power loss.
      host.storage.syncDirectories()
    }
  }

  /// How the store is checked: encrypted, after a clean close, by which kind of opening.
  static let ways: [(sealed: Bool, closed: Bool, mode: Configuration.Mode)] = [
    (false, true, .shared), (false, false, .shared), (false, false, .readOnly), (true, true, .shared),
    (true, false, .exclusive),
  ]

  @Test("never gives a wrong value, whichever bit is flipped (F37, F42)", arguments: 0..<ways.count)
  func everyBit(way: Int) throws {
    let (sealed, closed, mode) = Self.ways[way]
    let sample = try Sample(sealed: sealed, closed: closed)
    var count = way
    for path in sample.names {
      let bytes = try #require(sample.files[path])
      // Used bytes, and those next to them: most of an integer are zeros.
      for offset in bytes.indices
      where bytes[max(0, offset - 8)..<min(offset + 8, bytes.count)].contains(where: { $0 != 0 }) {
        for bit in 0..<8 {
          count += 1
          guard Self.all || count.isMultiple(of: 997) else { continue }
          try sample.host.storage.flipBit(of: path, at: offset, bit: bit)
          try sample.look(mode: mode, "\(path), byte \(offset), bit \(bit), way \(way)")
          try sample.restore()
        }
      }
    }
  }

  @Test("never gives a wrong value, wherever a file is truncated (F19, F45)", arguments: 0..<ways.count)
  func everyLength(way: Int) throws {
    let (sealed, closed, mode) = Self.ways[way]
    let sample = try Sample(sealed: sealed, closed: closed)
    for path in sample.names {
      let bytes = try #require(sample.files[path])
      let used = (bytes.lastIndex { $0 != 0 } ?? 0) + 1
      // In the journal's records a truncation could silently lose a write: more of it is tried.
      let parts = path.hasSuffix(".segment") ? 29 : 3
      for size in stride(from: 0, through: used, by: Self.all ? 1 : max(1, used / parts)) {
        try sample.host.storage.open(path, .readWrite).resize(to: size)
        sample.host.killProcesses()
        try sample.look(mode: mode, "\(path) cut to \(size), way \(way)")
        try sample.restore()
      }
    }
  }
}

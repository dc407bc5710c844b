import Foundation
import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// The byte limit applies to disk use: the value of `du` for the directory, even while several threads write
/// as fast as they can.
@Suite("A full disk cache", .timeLimit(.minutes(Patience.minutes(2))))
struct DiskCacheLimitTests {
  private let directory = TemporaryDirectory()

  /// Disk blocks in bytes of all files and directories below a path, as counted by `du`.
  static func blocks(below path: String) -> Int {
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else { return 0 }
    var bytes = Int(status.st_blocks) * 512
    guard status.st_mode & S_IFMT == S_IFDIR else { return bytes }
    for name in (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? [] {
      bytes += blocks(below: path + "/" + name)
    }
    return bytes
  }

  /// The content: keys, and bytes of values.
  struct Load: Sendable, CustomTestStringConvertible {
    let name: String
    let threads: Int
    let keys: Int
    let sizes: [Int]
    let total: Int

    var testDescription: String { name }
  }

  static let limit = 4_000_000
  static let loads = [
    Load(name: "small values, each key once", threads: 4, keys: .max, sizes: [100], total: 2 << 20),
    Load(
      name: "values of all sizes", threads: 4, keys: .max, sizes: [10, 3000, 40_000, 700_000], total: 40 << 20
    ),
    Load(name: "few keys, overwritten", threads: 4, keys: 200, sizes: [5000], total: 16 << 20),
    Load(name: "keys that fill it, overwritten", threads: 3, keys: 900, sizes: [4000], total: 12 << 20),
    Load(name: "values of half the limit", threads: 2, keys: .max, sizes: [1_900_000], total: 24 << 20),
  ]

  @Test("exceeds its limit by at most a fifth at any time, and not at rest", arguments: loads)
  func holds(_ load: Load) async throws {
    var limits = DiskCache.Limits()
    limits.bytes = Self.limit
    let path = directory.path + "/cache"
    let cache = try DiskCache.open(at: path, limits: limits)
    let most = Locked(0)
    let isDone = Locked(false)
    let watcher = Worker.run {
      while !isDone.withLock({ $0 }) {
        let bytes = Self.blocks(below: path)
        most.withLock { $0 = max($0, bytes) }
      }
    }
    let writers = (0..<load.threads).map { thread in
      Worker.run {
        var random = SplitMix64(seed: UInt64(thread))
        var (written, number) = (0, 0)
        while written < load.total / load.threads {
          let size = load.sizes[Int(random.next() % UInt64(load.sizes.count))]
          let key = load.keys == .max ? "\(thread)/\(number)" : "\(random.next() % UInt64(load.keys))"
          try cache.set(key, [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: size))
          if load.keys == .max { #expect(try cache.get(key)?.count == size || load.threads > 1) }
          (written, number) = (written + size, number + 1)
        }
      }
    }
    for writer in writers { try writer.wait() }
    isDone.withLock { $0 = true }
    try watcher.wait()
    let atMost = most.withLock { $0 }
    #expect(atMost <= Self.limit + Self.limit / 5, "\(atMost) at most")
    #expect(atMost > Self.limit / 3, "\(atMost) at most: the watcher saw nothing")
    // It rests once space was made for the last write: values moved for that exist twice for a moment.
    try await ChangesTests.until { Self.blocks(below: path) <= Self.limit }
    #expect(try cache.totalBytes <= Self.limit)
    let largest = load.sizes.reduce(0, max)
    // Making space for a value of half the limit evicts all others, possibly also that one if two threads
    // make space at a time.
    let keepsLast = largest < Self.limit / 4
    if load.keys == 200 {
      #expect(try cache.count == 200)
    } else if keepsLast {
      // Making space for a new value does not empty it.
      #expect(try cache.totalBytes > Self.limit / 3)
    }
    try cache.set("last", [UInt8](repeating: 1, count: largest))
    if keepsLast { #expect(try cache.get("last")?.count == largest) }
    try cache.trim()
    #expect(Self.blocks(below: path) <= Self.limit)
    cache.close()
    // Values being moved at the close exist twice until it is reopened.
    #expect(Self.blocks(below: path) <= Self.limit + Self.limit / 5)
    let again = try DiskCache.open(at: path, limits: limits)
    try await ChangesTests.until { Self.blocks(below: path) <= Self.limit }
    if keepsLast { #expect(try again.get("last")?.count == largest) }
    again.close()
  }

  @Test("keeps the most recently used values, and drops at once a value that exceeds the limit alone")
  func leaves() throws {
    var limits = DiskCache.Limits()
    limits.bytes = 2 << 20
    let cache = try DiskCache.open(at: directory.path + "/cache", limits: limits)
    for number in 0..<200 { try cache.set("\(number)", [UInt8](repeating: 1, count: 40_000)) }
    #expect(try cache.get("199")?.count == 40_000)
    #expect(try cache.get("0") == nil)
    try cache.set("199", [UInt8](repeating: 2, count: 3 << 20))
    #expect(try !cache.contains("199"))
    #expect(try cache.contains("198"))
    // A lower limit holds soon, and at once after a trim.
    limits.bytes = 1 << 20
    cache.limits = limits
    try cache.trim()
    #expect(Self.blocks(below: directory.path + "/cache") <= 1 << 20)
    #expect(try cache.contains("198"))
    cache.close()
    limits.bytes = 1 << 20
    let again = try DiskCache.open(at: directory.path + "/cache", limits: limits)
    #expect(try again.contains("198"))
    try again.removeAll()
    try again.set("new", [UInt8](repeating: 3, count: 500_000))
    #expect(try again.get("new")?.count == 500_000)
    again.close()
  }

  @Test("runs a trim requested during another one after it")
  func follows() async throws {
    var limits = DiskCache.Limits()
    limits.count = 50
    let cache = try DiskCache.open(at: directory.path + "/cache", limits: limits)
    let writers = (0..<3).map { thread in
      Worker.run {
        for number in 0..<400 {
          try cache.set("\(thread)/\(number)", [1])
          #expect(try cache.count <= 65)
        }
      }
    }
    for writer in writers { try writer.wait() }
    try await ChangesTests.until { try cache.count <= 50 }
    cache.close()
  }
}

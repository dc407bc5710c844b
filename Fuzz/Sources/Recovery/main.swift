import Foundation
import SyncStore

/// Damages copies of a store at random and opens them: opening must terminate with the store or an error, and
/// no key may ever have a value that was not put (F37, F45).
///
///   Recovery [SECONDS [SEED]]
struct Fuzzer {
  private let folder = NSTemporaryDirectory() + "sync-store-fuzz-\(UUID().uuidString)"
  private var random: SplitMix
  private var truth: [Key: Set<[UInt8]>] = [:]

  init(seed: UInt64) { random = SplitMix(state: seed) }

  mutating func run(seconds: Double) throws -> (rounds: Int, refused: Int, reported: Int) {
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try makeOriginal()
    let end = Date(timeIntervalSinceNow: seconds)
    var (rounds, refused, reported) = (0, 0, 0)
    while Date() < end {
      let copy = folder + "/copy"
      try? FileManager.default.removeItem(atPath: copy)
      try FileManager.default.copyItem(atPath: folder + "/original", toPath: copy)
      try damage(copy)
      rounds += 1
      do {
        let store = try Store.open(at: copy)
        try check(store)
        if try !store.verify().isClean { reported += 1 }
        try store.put("after", [1])
        try store.close()
      } catch is StoreError {
        refused += 1
      }
    }
    return (rounds, refused, reported)
  }

  private mutating func makeOriginal() throws {
    let store = try Store.create(at: folder + "/original", configuration: Configuration(durability: .relaxed))
    for index in 0..<300 {
      let key = try Key("key \(index % 100)")
      let count = index % 37 == 0 ? 30_000 : index % 11 == 0 ? 5_000 : 40
      let value = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
      try store.put(key, value)
      truth[key, default: []].insert(value)
    }
    try store.close()
  }

  /// A few bits, a run of bytes, a truncation, or a piece of one file in another.
  private mutating func damage(_ copy: String) throws {
    let files = try FileManager.default.subpathsOfDirectory(atPath: copy).sorted()
      .map { copy + "/" + $0 }.filter { (try? Data(contentsOf: URL(fileURLWithPath: $0)))?.isEmpty == false }
    for _ in 0...Int.random(in: 0..<3, using: &random) {
      guard let file = files.randomElement(using: &random), let other = files.randomElement(using: &random)
      else { return }
      try? FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
      var bytes = try Data(contentsOf: URL(fileURLWithPath: file))
      guard !bytes.isEmpty else { continue }
      let used = (bytes.lastIndex { $0 != 0 } ?? 0) + 1
      let place = Int.random(in: 0..<used, using: &random)
      switch Int.random(in: 0..<5, using: &random) {
      case 0: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
      case 1:
        for index in place..<min(place + 64, bytes.count) {
          bytes[index] = UInt8.random(in: 0...255, using: &random)
        }
      case 2: bytes = bytes.prefix(place)
      case 3: for index in place..<min(place + 4096, bytes.count) { bytes[index] = 0 }
      default:
        let piece = try Data(contentsOf: URL(fileURLWithPath: other)).prefix(4096)
        bytes.replaceSubrange(
          place..<min(place + piece.count, bytes.count), with: piece.prefix(bytes.count - place))
      }
      // In place: the file keeps its inode.
      let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
      try handle.truncate(atOffset: 0)
      try handle.write(contentsOf: bytes)
      try handle.close()
    }
  }

  private func check(_ store: Store) throws {
    for key in truth.keys {
      // An older value may return when the newer record is lost; that is reported, and never a foreign value.
      if let value = try? store.get(key), truth[key]?.contains(value.bytes) != true {
        preconditionFailure("\(key) has a value that was never put")
      }
    }
  }
}

/// Sebastiano Vigna's SplitMix64.
struct SplitMix: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var word = state
    word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
    return word ^ word >> 31
  }
}

let seconds = CommandLine.arguments.dropFirst().first.flatMap(Double.init) ?? 60
let seed = CommandLine.arguments.dropFirst(2).first.flatMap { UInt64($0) } ?? UInt64.random(in: 0 ... .max)
print("Recovery, \(seconds) s, seed \(seed)")
var fuzzer = Fuzzer(seed: seed)
let result = try fuzzer.run(seconds: seconds)
print(
  "\(result.rounds) damaged stores: \(result.refused) refused, \(result.reported) opened and reported, no wrong value"
)

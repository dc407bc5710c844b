/// The keys whose latest records were lost in one damaged range, as far as an index can name them. An index
/// stores no keys, but 31 bits of each key's hash.
///
/// An intact key has the same 31 bits as one of n lost keys with a probability of n / 2^30.6. It is then
/// refused as `.damaged` although its record is whole; the opposite error cannot occur.
struct LostKeyFingerprints: Hashable, Sendable {
  /// The fingerprint that an index stores of each lost key (`HashParts.fingerprint`), by the hash seed of the
  /// index. Each index has its own seed, and damage can grow between two of them.
  private(set) var fingerprints: [UInt64: Set<UInt32>] = [:]

  /// Above this number of keys a damaged range counts as not attributed. This keeps the local record of the
  /// damage below 256 KiB.
  static let limit = 1 << 15

  init() {}

  var count: Int { fingerprints.values.reduce(0) { $0 + $1.count } }
  var isEmpty: Bool { fingerprints.isEmpty }

  mutating func insert(_ fingerprint: UInt32, seed: UInt64) {
    fingerprints[seed, default: []].insert(fingerprint)
  }

  mutating func formUnion(_ other: LostKeyFingerprints) {
    fingerprints.merge(other.fingerprints) { $0.union($1) }
  }

  /// Removes the fingerprints of a key.
  mutating func remove(_ key: [UInt8]) {
    for seed in fingerprints.keys { fingerprints[seed]?.remove(Self.fingerprint(of: key, seed: seed)) }
  }

  /// The fingerprint of a key in the index with this seed.
  static func fingerprint(of key: [UInt8], seed: UInt64) -> UInt32 {
    HashParts(XXH3.hash64(key, seed: seed)).fingerprint
  }

  // MARK: Encoding in the damage record (`schemas/journal.md`)

  /// Reads what `write(to:)` wrote, up to the end of `reader`. Nil if nothing follows, as in records of older
  /// programs, or if it does not parse.
  init?(from reader: inout ByteReader) {
    guard let seeds = try? reader.read(UInt8.self) else { return nil }
    for _ in 0..<seeds {
      guard let seed = try? reader.read(UInt64.self), let count = try? reader.read(UInt32.self),
        count <= Self.limit
      else { return nil }
      for _ in 0..<count {
        guard let fingerprint = try? reader.read(UInt32.self) else { return nil }
        insert(fingerprint, seed: seed)
      }
    }
    guard reader.remaining == 0 else { return nil }
  }

  /// Writes the number of seeds (1 byte), then for each the seed (8), the number of fingerprints (4), and the
  /// fingerprints in ascending order (4 each).
  func write(to writer: inout ByteWriter) {
    writer.write(UInt8(fingerprints.count))
    for (seed, fingerprints) in fingerprints.sorted(by: { $0.key < $1.key }) {
      writer.write(seed)
      writer.write(UInt32(fingerprints.count))
      for fingerprint in fingerprints.sorted() { writer.write(fingerprint) }
    }
  }
}

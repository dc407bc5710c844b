import SyncStore

/// The digest of converged copies, computed from the requested writes alone and as `schemas/wire.md`
/// describes: of the store's code only XXH3 and SHA-256 are used.
extension Oracle {
  /// The state digest for this coverage.
  ///
  /// Doubtful writes only promise that all copies agree: for them the record that one copy has `held` counts,
  /// if it was ever written.
  func digest(
    of coverage: Coverage, _ clocks: Clocks, held: (Key) throws -> LogEntry?
  ) throws -> StateDigest? {
    var sum: UInt128 = 0
    for key in Set(byKey.keys).union(doubtful.keys) {
      var winner = winner(of: key, in: coverage)
      let entry = try held(key)
      if let entry, let write = try doubtfulWrite(entry, of: key) { winner = write }
      // A doubtful delete has beaten it, and was purged.
      if let top = winner, entry == nil,
        mayBeBeaten(top, byOneOf: { $0.content.mayBePurged(by: clocks.latest) })
      {
        winner = nil
      }
      if let winner, winner.content.isLive(at: clocks.own) { sum &+= winner.part }
    }
    return StateDigest(bytes: (0..<16).map { UInt8(truncatingIfNeeded: sum >> UInt128(120 - 8 * $0)) })
  }

  /// The doubtful write of an entry; nil if it is not doubtful.
  func doubtfulWrite(_ entry: LogEntry, of key: Key) throws(Violation) -> Write? {
    guard let list = doubtful[key] else { return nil }
    let content = try content(of: entry, at: "the first copy")
    let write = Write(stamp: entry.stamp.rawValue, dot: entry.dot, key: key, content: content)
    return list.contains(write) ? write : nil
  }
}

extension Oracle.Write {
  /// Its contribution to the state digest.
  fileprivate var part: UInt128 {
    guard let value = content.bytes else { return 0 }
    var bytes = Self.counted(key.bytes) + dot.actor.bytes + Self.variable(dot.sequence)
    bytes += Self.fixed(stamp)
    bytes.append(ValueType.bytes.rawValue)
    bytes += Self.fixed(content.deadline)
    if content.isLarge {
      bytes += [2] + SHA256.hash(value) + Self.variable(UInt64(value.count)) + Self.counted([])
    } else {
      bytes += [1] + Self.counted(value)
    }
    let hash = XXH3.hash128(bytes)
    return UInt128(hash.high) << 64 | UInt128(hash.low)
  }

  private static func fixed(_ number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
  }

  /// LEB128: seven bits a byte, lowest first; the highest bit says that more follow.
  private static func variable(_ number: UInt64) -> [UInt8] {
    var (bytes, rest): ([UInt8], UInt64) = ([], number)
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    return bytes + [UInt8(rest)]
  }

  private static func counted(_ bytes: [UInt8]) -> [UInt8] { variable(UInt64(bytes.count)) + bytes }
}

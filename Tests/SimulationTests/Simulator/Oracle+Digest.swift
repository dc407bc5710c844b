import SyncStore

/// The digest that copies in step must have, from what was written alone and laid out as `schemas/wire.md` says: nothing of how the
/// store computes it is called but XXH3.
extension Oracle {
  /// The state digest of who covers `vector`, judged at `time`.
  ///
  /// What is in doubt is promised nothing but that all hold the same: there what one copy has `held` counts, if somebody wrote it.
  func digest(
    of vector: VersionVector, at time: UInt64, held: (Key) throws -> LogEntry?
  ) throws -> StateDigest? {
    var sum: UInt128 = 0
    for key in Set(byKey.keys).union(doubtful.keys) {
      var winner = winner(of: key) { vector.covers($0) }
      if let doubtful = doubtful[key], let entry = try held(key) {
        let write = Write(entry, of: key)
        if doubtful.contains(write) { winner = write }
      }
      if let winner, winner.deadline == 0 || winner.deadline > time { sum &+= winner.part }
    }
    return StateDigest(bytes: (0..<16).map { UInt8(truncatingIfNeeded: sum >> UInt128(120 - 8 * $0)) })
  }
}

extension Oracle.Write {
  init(_ entry: LogEntry, of key: Key) {
    self.init(
      version: Version(stamp: entry.stamp, dot: entry.dot), key: key, part: Self.part(entry, key),
      deadline: entry.deadline ?? 0)
  }

  private static func part(_ entry: LogEntry, _ key: Key) -> UInt128 {
    if entry.isTombstone { return 0 }
    var bytes = counted(key.bytes) + entry.dot.actor.bytes + variable(entry.dot.sequence)
    bytes += fixed(entry.stamp.rawValue)
    bytes.append(entry.type.rawValue)
    bytes += fixed(entry.deadline ?? 0)
    if let blob = entry.blob {
      bytes += [2] + blob.hash.bytes + variable(blob.size) + counted(blob.metadata)
    } else {
      bytes += [1] + counted(entry.value ?? [])
    }
    let hash = XXH3.hash128(bytes)
    return UInt128(hash.high) << 64 | UInt128(hash.low)
  }

  private static func fixed(_ number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
  }

  /// Seven bits a byte, lowest first; the highest bit says that more follow.
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

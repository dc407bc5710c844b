package import SyncStore

/// The state of one side of an idle live session, for comparison by the other.
///
/// A digest can be compared only if both sides cover the same writes. The vector itself would be large with
/// many members, so its hash is sent.
package struct StateClaim: Hashable, Sendable {
  /// The time at which expirations were evaluated, in milliseconds since 1970.
  package var at: UInt64
  /// XXH3-128 of the encoded vector: 16 bytes, highest first.
  package var vector: [UInt8]
  /// The digest of the live records.
  package var digest: StateDigest

  /// All fields. `vector` has 16 bytes.
  package init(at: UInt64, vector: [UInt8], digest: StateDigest) {
    (self.at, self.vector, self.digest) = (at, vector, digest)
  }

  /// The claim of a state.
  package init(_ state: DigestedState) {
    var writer = ByteWriter()
    writer.write(state.vector)
    let hash = XXH3.hash128(writer.bytes)
    var bytes = ByteWriter(capacity: 16)
    bytes.write(hash.high.bigEndian)
    bytes.write(hash.low.bigEndian)
    self.init(at: state.at, vector: bytes.bytes, digest: state.digest)
  }

  func write(to writer: inout ByteWriter) {
    writer.writeVariable(at)
    writer.write(raw: vector)
    writer.write(raw: digest.bytes)
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    self.init(
      at: try reader.readVariable(), vector: Array(try reader.read(raw: 16)), digest: try reader.readDigest())
  }
}

/// The digests of all keys in 256 groups: the first question of a repair.
package struct DigestGroups: Hashable, Sendable {
  /// Number of groups, and of buckets in each group: a key's group is the upper byte of its bucket.
  package static let count = 256

  /// The time at which expirations were evaluated, in milliseconds since 1970.
  package var at: UInt64
  /// One for each group.
  package var digests: [StateDigest]

  /// Both fields.
  package init(at: UInt64, digests: [StateDigest]) { (self.at, self.digests) = (at, digests) }

  func write(to writer: inout ByteWriter) {
    writer.writeVariable(at)
    for digest in digests { writer.write(raw: digest.bytes) }
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    self.init(at: try reader.readVariable(), digests: try Self.digests(from: &reader))
  }

  static func digests(from reader: inout ByteReader) throws(DecodingFailure) -> [StateDigest] {
    var digests: [StateDigest] = []
    digests.reserveCapacity(count)
    for _ in 0..<count { digests.append(try reader.readDigest()) }
    return digests
  }
}

/// The digests of the buckets of one group.
package struct GroupBuckets: Hashable, Sendable {
  /// The group.
  package var group: UInt8
  /// One for each bucket.
  package var digests: [StateDigest]

  /// Both fields.
  package init(group: UInt8, digests: [StateDigest]) { (self.group, self.digests) = (group, digests) }

  static func write(_ groups: [GroupBuckets], to writer: inout ByteWriter) {
    writer.writeVariable(UInt64(groups.count))
    for group in groups {
      writer.write(group.group)
      for digest in group.digests { writer.write(raw: digest.bytes) }
    }
  }

  /// Groups ascend.
  static func list(from reader: inout ByteReader) throws(DecodingFailure) -> [GroupBuckets] {
    var groups: [GroupBuckets] = []
    for _ in 0..<(try reader.readCount(limit: WireLimits.repairGroups)) {
      let group = GroupBuckets(
        group: try reader.read(UInt8.self), digests: try DigestGroups.digests(from: &reader))
      if let last = groups.last, last.group >= group.group { throw DecodingFailure("groups out of order") }
      groups.append(group)
    }
    return groups
  }
}

/// The fingerprints of all keys of some buckets.
package struct BucketPrints: Hashable, Sendable {
  /// The buckets, ascending.
  package var buckets: [UInt16]
  /// The fingerprints bucket by bucket, sorted by hash within each.
  package var prints: [RecordFingerprint]

  /// Both fields.
  package init(buckets: [UInt16], prints: [RecordFingerprint]) {
    (self.buckets, self.prints) = (buckets, prints)
  }

  func write(to writer: inout ByteWriter) {
    var rest = prints[...]
    writer.writeVariable(UInt64(buckets.count))
    for bucket in buckets {
      let own = rest.prefix { RecordFingerprint.bucket(of: $0.keyHash) == bucket }
      rest = rest.dropFirst(own.count)
      writer.write(bucket)
      writer.writeVariable(UInt64(own.count))
      for print in own {
        // The bucket is given by the other bits of the hash.
        for shift in stride(from: 16 as UInt64, to: 64, by: 8) {
          writer.write(UInt8(truncatingIfNeeded: print.keyHash >> shift))
        }
        writer.write(print.state.rawValue)
        if print.state == .live { writer.write(print.content) }
      }
    }
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    self.init(buckets: [], prints: [])
    for _ in 0..<(try reader.readCount(limit: WireLimits.repairBuckets)) {
      let bucket = try reader.read(UInt16.self)
      if let last = buckets.last, last >= bucket { throw DecodingFailure("buckets out of order") }
      buckets.append(bucket)
      var last: UInt64?
      for _ in 0..<(try reader.readCount(limit: WireLimits.repairPrints - prints.count)) {
        var hash = UInt64(bucket)
        for shift in stride(from: 16 as UInt64, to: 64, by: 8) {
          hash |= UInt64(try reader.read(UInt8.self)) << shift
        }
        if let last, last >= hash { throw DecodingFailure("fingerprints out of order") }
        last = hash
        let number = try reader.read(UInt8.self)
        guard let state = RecordFingerprint.State(rawValue: number) else {
          throw DecodingFailure("fingerprint of state \(number)")
        }
        let content = state == .live ? try reader.read(UInt64.self) : 0
        prints.append(RecordFingerprint(keyHash: hash, state: state, content: content))
      }
    }
  }
}

/// The records of one side for keys that differ, encrypted like a batch.
package struct DifferingRecords: Hashable, Sendable {
  /// The hashes of all keys that this message covers, ascending, including keys without a record on this
  /// side.
  package var hashes: [UInt64]
  /// The encrypted records (`schemas/wire.md`).
  package var encrypted: [UInt8]

  /// Both fields.
  package init(hashes: [UInt64], encrypted: [UInt8]) { (self.hashes, self.encrypted) = (hashes, encrypted) }

  func write(to writer: inout ByteWriter) {
    writer = ByteWriter(capacity: encrypted.count + hashes.count * 8 + 8)
    writer.writeVariable(UInt64(hashes.count))
    for hash in hashes { writer.write(hash) }
    writer.write(raw: encrypted)
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    var hashes: [UInt64] = []
    for _ in 0..<(try reader.readCount(limit: WireLimits.repairKeys)) {
      let hash = try reader.read(UInt64.self)
      if let last = hashes.last, last >= hash { throw DecodingFailure("hashes out of order") }
      hashes.append(hash)
    }
    self.init(hashes: hashes, encrypted: try reader.readRest())
  }
}

internal import SyncStore

/// What the sender holds of the keys that differ, in some of the buckets that it was asked about. Values are
/// stated by hash and size (`Record.stated`).
package struct KeyStates: Hashable, Sendable {
  /// The buckets that this answer covers, ascending: all keys of them that differ are in it.
  package var buckets: [UInt16]
  /// The hashes of these keys, ascending, including keys without a record on this side.
  package var hashes: [UInt64]
  /// The encrypted records (`schemas/wire.md`).
  package var encrypted: [UInt8]

  /// All fields.
  package init(buckets: [UInt16], hashes: [UInt64], encrypted: [UInt8]) {
    (self.buckets, self.hashes, self.encrypted) = (buckets, hashes, encrypted)
  }

  func write(to writer: inout ByteWriter) {
    writer = ByteWriter(capacity: encrypted.count + hashes.count * 8 + buckets.count * 2 + 16)
    writer.writeVariable(UInt64(buckets.count))
    for bucket in buckets { writer.write(bucket) }
    writer.writeVariable(UInt64(hashes.count))
    for hash in hashes { writer.write(hash) }
    writer.write(raw: encrypted)
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    self.init(buckets: [], hashes: [], encrypted: [])
    for _ in 0..<(try reader.readCount(limit: WireLimits.repairBuckets)) {
      let bucket = try reader.read(UInt16.self)
      if let last = buckets.last, last >= bucket { throw DecodingFailure("buckets out of order") }
      buckets.append(bucket)
    }
    for _ in 0..<(try reader.readCount(limit: WireLimits.comparedKeys)) {
      let hash = try reader.read(UInt64.self)
      if let last = hashes.last, last >= hash { throw DecodingFailure("hashes out of order") }
      hashes.append(hash)
    }
    encrypted = try reader.readRest()
  }
}

package import SyncStore

/// Feature bits that a hello announces beyond the first version. A feature is used only if both hellos have
/// its bit.
package enum SessionFeature {
  /// The session may stay open: new records flow as they become durable.
  ///
  /// The client sets the bit to request this; the server sets it if it was requested and granted.
  package static let live: UInt64 = 1
  /// Repair: finding and mending keys whose contents differ although both sides cover the same writes.
  package static let repair: UInt64 = 4
  /// Group keys may be passed on within a session.
  package static let groupKeys: UInt64 = 8
  /// Blobs may be assembled from chunks that they share with other blobs.
  package static let chunks: UInt64 = 16
  /// In the server's hello: it lacks no blob that its records refer to.
  package static let isComplete: UInt64 = 64
  /// The side answers which blobs it holds.
  package static let holdings: UInt64 = 256
  /// In the client's hello: it sends a server the keys that the server lacks, if asked. In the server's
  /// hello: it will ask with *scope want*, immediately after its hello.
  package static let scopeExpansion: UInt64 = 1024
  /// A session goes live even if the keys that a side asked for could not be sent.
  package static let waitsForKeys: UInt64 = 2048
  /// The side does not keep all blobs that it receives: its receipts do not confirm that it holds them.
  package static let leavesOut: UInt64 = 512
  /// More batches of a round may be in flight (`WireLimits.moreBatchesInFlight`).
  package static let moreBatches: UInt64 = 4096
  /// The side states what it holds of keys that differ, without moving records.
  package static let comparison: UInt64 = 8192
}

/// Feature bits that the other side must know, or refuse the session (`Hello.incompatibleFeatures`).
package enum NeededFeature {
  /// The copy holds only the keys of its scope, which the hello states.
  package static let scope: UInt64 = 1
  /// All bits known to this program.
  package static let known = scope
}

/// The beginning of a round of a live session.
///
/// It announces what the snapshot covers, so that the receiver does not send back the sender's own records.
/// The receiver merges that only when the round ends, never earlier (rule R6).
package struct LiveUpdate: Hashable, Sendable {
  /// The round's name.
  package var mark: RoundMark
  /// The last position of the snapshot.
  package var position: UInt64
  /// Number of records to come, for progress.
  package var records: UInt64
  /// What the snapshot covers beyond the earlier rounds of this side in this session.
  package var vector: VersionVector
  /// The sender's floor, beyond those earlier rounds.
  package var floor: VersionVector
  /// The sender's horizon.
  package var horizon: Stamp

  /// All fields.
  package init(
    mark: RoundMark, position: UInt64, records: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp
  ) {
    (self.mark, self.position, self.records) = (mark, position, records)
    (self.vector, self.floor, self.horizon) = (vector, floor, horizon)
  }

  func write(to writer: inout ByteWriter) {
    writer.write(raw: mark.bytes)
    writer.writeVariable(position)
    writer.writeVariable(records)
    writer.write(vector)
    writer.write(floor)
    writer.write(horizon.rawValue)
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    self.init(
      mark: try reader.readMark(), position: try reader.readVariable(), records: try reader.readVariable(),
      vector: try reader.readVector(), floor: try reader.readVector(), horizon: try reader.readStamp())
  }
}

/// Proves that a side knows the group key of an epoch, without the key.
package struct EpochCheck: Hashable, Sendable {
  /// Bytes of a check.
  package static let checkBytes = 8

  /// The epoch.
  package var epoch: UInt32
  /// The first 8 bytes of an HMAC under the key: equal for equal keys, useless without the key.
  package var check: [UInt8]

  /// Both fields.
  package init(epoch: UInt32, check: [UInt8]) { (self.epoch, self.check) = (epoch, check) }

  static func write(_ checks: [EpochCheck], to writer: inout ByteWriter) {
    writer.writeVariable(UInt64(checks.count))
    for check in checks {
      writer.write(check.epoch)
      writer.write(raw: check.check)
    }
  }

  /// Epochs ascend, from 1.
  static func list(from reader: inout ByteReader) throws(DecodingFailure) -> [EpochCheck] {
    var checks: [EpochCheck] = []
    for _ in 0..<(try reader.readCount(limit: GroupKeyRing.maximumEpochs)) {
      let check = EpochCheck(
        epoch: try reader.read(UInt32.self), check: Array(try reader.read(raw: checkBytes)))
      guard check.epoch > checks.last?.epoch ?? 0 else { throw DecodingFailure("epochs out of order") }
      checks.append(check)
    }
    return checks
  }
}

package import SyncStore

/// What hellos say of what a side can do beyond the first of all sessions. A side uses a feature only if both hellos
/// have its bit.
package enum SessionFeature {
  /// The session may stay open: new records flow as they become durable. The client sets it if it wants that, the
  /// server if it was wanted and is granted.
  package static let live: UInt64 = 1
  /// Keys of which the two sides have different contents, though they cover the same writes, are found and put right.
  package static let repair: UInt64 = 4
  /// Group keys may be handed on within a session.
  package static let groupKeys: UInt64 = 8
  /// Blobs may be put together of chunks that other blobs have in common with them.
  package static let chunks: UInt64 = 16
  /// In the server's hello: it lacks no large value that its records refer to.
  package static let isComplete: UInt64 = 64
  /// It is said which large values a side holds, when it is asked.
  package static let holdings: UInt64 = 256
  /// In the client's hello: it gives a server the keys that it lacks, if that asks. In the server's: it will ask, with *scope want*,
  /// right behind its hello.
  package static let scopeExpansion: UInt64 = 1024
  /// Where the keys that a side asked for could not be given, a session that stays open goes on live all the same.
  package static let waitsForKeys: UInt64 = 2048
  /// The side leaves large values out of what it takes: its receipts do not say that it holds them.
  package static let leavesOut: UInt64 = 512
  /// More batches of a round may be under way (`WireLimits.moreBatchesInFlight`).
  package static let moreBatches: UInt64 = 4096
}

/// What hellos say that the other side must know, or not go on (`Hello.incompatibleFeatures`).
package enum NeededFeature {
  /// The copy holds only some keys, and says which.
  package static let scope: UInt64 = 1
  /// All that this program knows.
  package static let known = scope
}

/// The beginning of a round of a live session. What the snapshot covers is said first, so that the receiver does not
/// give back what the sender has; it is merged when the round ends, and never earlier (rule R6).
package struct LiveUpdate: Hashable, Sendable {
  /// The round's name.
  package var mark: RoundMark
  /// The last position of the snapshot.
  package var position: UInt64
  /// How many records will come, for showing progress.
  package var records: UInt64
  /// What the snapshot covers beyond what this side's rounds in this session have said before.
  package var vector: VersionVector
  /// The same of the sender's floor.
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

/// That a side knows the group key of an epoch, without the key.
package struct EpochCheck: Hashable, Sendable {
  /// Bytes of a check.
  package static let checkBytes = 8

  /// The epoch.
  package var epoch: UInt32
  /// The first 8 bytes of an HMAC under the key: equal for equal keys, of no use to who lacks the key.
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

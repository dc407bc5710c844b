package import SyncStore

/// Asks the other side which of these blobs it holds. Sent before an eviction pass removes them here.
package struct HoldingsWanted: Hashable, Sendable {
  /// Number that the answer repeats.
  package var number: UInt64
  /// Hash and size of each; from 1 to `WireLimits.holdings`.
  package var blobs: [BlobReference]

  /// Both fields.
  package init(number: UInt64, blobs: [BlobReference]) { (self.number, self.blobs) = (number, blobs) }
}

/// The answer to `HoldingsWanted`.
package struct HoldingsStated: Hashable, Sendable {
  /// The holdings of a side at one time.
  package struct Statement: Hashable, Sendable {
    /// The vector that the side covers.
    package var covered: VersionVector
    /// For each requested blob: whether it is present, durable and intact.
    package var held: [Bool]

    /// Both fields.
    package init(covered: VersionVector, held: [Bool]) { (self.covered, self.held) = (covered, held) }
  }

  /// The number of the question.
  package var number: UInt64
  /// Nil if the side makes no statement because it evicts blobs itself.
  package var statement: Statement?

  /// Both fields.
  package init(number: UInt64, statement: Statement?) {
    (self.number, self.statement) = (number, statement)
  }
}

extension HoldingsWanted {
  func write(to writer: inout ByteWriter) {
    writer.writeVariable(number)
    writer.writeVariable(UInt64(blobs.count))
    for blob in blobs {
      writer.write(raw: blob.hash.bytes)
      writer.writeVariable(blob.size)
    }
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    number = try reader.readVariable()
    blobs = []
    for _ in 0..<(try reader.readCount(limit: WireLimits.holdings)) {
      let (hash, size) = (try reader.readBlobHash(), try reader.readVariable())
      guard size <= Limits.blobBytes else {
        throw DecodingFailure("a blob of \(CountText.of(size, noun: "byte"))")
      }
      blobs.append(BlobReference(hash: hash, size: size))
    }
    guard !blobs.isEmpty else { throw DecodingFailure("nothing asked about") }
  }
}

extension HoldingsStated {
  func write(to writer: inout ByteWriter) {
    writer.writeVariable(number)
    guard let statement else { return writer.write(UInt8(0)) }
    writer.write(UInt8(1))
    writer.write(statement.covered)
    writer.writeVariable(UInt64(statement.held.count))
    for start in stride(from: 0, to: statement.held.count, by: 8) {
      var byte: UInt8 = 0
      for (bit, isHeld) in statement.held[start...].prefix(8).enumerated() where isHeld { byte |= 1 << bit }
      writer.write(byte)
    }
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    number = try reader.readVariable()
    switch try reader.read(UInt8.self) {
    case 0: statement = nil
    case 1:
      let covered = try reader.readVector()
      let count = try reader.readCount(limit: WireLimits.holdings)
      let bytes = Array(try reader.read(raw: (count + 7) / 8))
      let held = (0..<count).map { bytes[$0 / 8] >> ($0 % 8) & 1 == 1 }
      if count % 8 > 0, let last = bytes.last, last >> (count % 8) != 0 {
        throw DecodingFailure("more is held than was asked about")
      }
      statement = Statement(covered: covered, held: held)
    default: throw DecodingFailure("a statement of another kind")
    }
  }
}

extension HoldingsStated.Statement {
  /// Which of `candidates` the side holds and will not sweep, because it covers the writes that name them.
  package func confirms(_ candidates: [EvictionCandidate]) -> [Bool] {
    guard held.count == candidates.count else { return candidates.map { _ in false } }
    return zip(candidates, held).map { candidate, isHeld in
      isHeld && candidate.dots.allSatisfy { covered[$0.actor] >= $0.sequence }
    }
  }
}

internal import Synchronization

/// Bounds the cost of finding the next record after damage.
///
/// After damage any bytes may take the place of a record's length, and each 8 bytes may seem to begin one:
/// hashing whatever length is stated there would cost the square of the damaged bytes. So the fields at the
/// beginning of a candidate must be plausible, and the bytes hashed in vain stay within a multiple of the
/// bytes searched.
extension Segment {
  /// Bytes searched after damage, and bytes hashed for it, of all passes through this segment.
  final class SearchCost: Sendable {
    let searched = Atomic(0)
    let hashed = Atomic(0)
  }

  /// The longest possible record: a batch of a delta stream with all its overhead is smaller.
  static let longestRecord = 16 << 20
  /// Bytes that may be hashed for each byte searched, and before any was.
  private static let hashedPerByte = 64
  private static let hashedAtFirst = 32 << 20
  /// Records up to this length are tried whatever was hashed before. Longer ones are skipped as damaged once
  /// the bytes before them were forged to resemble records thousands of times.
  private static let shortRecord = 1024

  /// True if a whole record begins at `offset`, where none is expected. Like
  /// `record(at:limit:leavesEncrypted:)`, at a bounded cost.
  func isRecordAfterDamage(at offset: Int, limit: Int, leavesEncrypted: Bool) -> Bool {
    searchCost.searched.add(RecordLayout.alignment, ordering: .relaxed)
    guard let length = possibleLength(at: offset, limit: limit) else { return false }
    let most = Self.hashedAtFirst + Self.hashedPerByte * searchCost.searched.load(ordering: .relaxed)
    guard length <= Self.shortRecord || searchCost.hashed.load(ordering: .relaxed) + length <= most else {
      return false
    }
    searchCost.hashed.add(length, ordering: .relaxed)
    return record(at: offset, limit: limit, leavesEncrypted: leavesEncrypted) != nil
  }

  /// The length of the record that may begin at `offset`; nil if the fields there contradict each other.
  private func possibleLength(at offset: Int, limit: Int) -> Int? {
    guard offset + RecordLayout.fixedLength <= limit else { return nil }
    let length = mapping.recordLength(at: offset)
    guard length >= RecordLayout.fixedLength, length <= min(limit - offset, Self.longestRecord),
      // The durable offset in a record never exceeds its own offset.
      mapping.recordDurable(at: offset) <= offset,
      mapping.load(offset + RecordLayout.type + 1, as: UInt8.self) == 0
    else { return nil }
    let kind = mapping.recordKinds(at: offset).code
    if kind == EncryptedRecordLayout.kind {
      return cipher != nil && length >= EncryptedRecordLayout.least ? length : nil
    }
    guard let known = RecordLayout.Kind(rawValue: kind) else {
      // Written by a newer program that knows more kinds of records.
      return kind > 0 && kind < 64 ? length : nil
    }
    guard known == .epoch || cipher == nil else { return nil }
    return possibleValue(of: known, at: offset, length: length).map { _ in length }
  }

  /// Bytes of the value of a record of this kind; nil if that length is impossible.
  private func possibleValue(of kind: RecordLayout.Kind, at offset: Int, length: Int) -> Int? {
    guard mapping.recordKinds(at: offset).flags.isSubset(of: .known),
      let key = mapping.recordKeyRange(at: offset, length: length)
    else { return nil }
    let possible: ClosedRange<Int> =
      switch kind {
      case .value: 0...Limits.inlineValueBytes
      case .blob: RecordLayout.blobLength...(RecordLayout.blobLength + Limits.blobMetadataBytes)
      case .tombstone, .localRemoval, .purge, .actor, .checkpoint: 0...0
      case .local, .epoch: 0...Self.longestRecord
      }
    let value = offset + length - key.upperBound
    return possible.contains(value) ? value : nil
  }
}

/// A key whose content differs between this copy and another.
public struct KeyDifference: Hashable, Sendable {
  /// What a copy holds of the key.
  public enum Content: Hashable, Sendable {
    /// Nothing: it was never written there, or its delete was purged.
    case nothing
    /// A delete, or an expired value, with the stamp of that write.
    case deleted(Stamp)
    /// A value.
    case value(Value)

    /// A value, without its bytes.
    public struct Value: Hashable, Sendable {
      /// Its size in bytes.
      public let size: UInt64
      /// Its type.
      public let type: ValueType
      /// The stamp of its write.
      public let stamp: Stamp
      /// When it expires, in milliseconds since 1970; nil if it does not.
      public let deadline: UInt64?
    }
  }

  /// One of the two copies.
  public enum Copy: Hashable, Sendable {
    /// This one.
    case here
    /// The other one.
    case there
  }

  /// The key.
  public let key: Key
  /// What this copy holds.
  public let here: Content
  /// What the other copy holds.
  public let there: Content
  /// The copy whose content both hold once they are in step.
  public let winner: Copy
}

extension Store {
  /// The keys among `keys` on which the copies differ, in order. Keys that this copy received after the
  /// scope's position are left out.
  ///
  /// - Parameters:
  ///   - keys: the keys known here or there.
  ///   - theirs: the other copy's record of each key, as `stated` makes it; none if it has none.
  ///   - covered: the version vector of the other copy.
  package func differences(
    of keys: some Sequence<[UInt8]>, from theirs: [[UInt8]: Record], covered: VersionVector,
    scope: RepairScope
  ) throws(StoreError) -> [KeyDifference] {
    let keys = Set(keys).sorted { $0.lexicographicallyPrecedes($1) }
    return try reading { engine throws(StoreError) in
      keys.compactMap { bytes in
        guard !ReservedKey.isReserved(bytes), let key = try? Key(bytes: bytes) else { return nil }
        let placed = engine.greatestWithPosition(bytes)
        guard placed?.position ?? 0 <= scope.position else { return nil }
        let (mine, other) = (placed?.record.stated, theirs[bytes])
        let (here, there) = (mine.content(at: scope.time), other.content(at: scope.time))
        guard mine != other, here.hasValue || there.hasValue else { return nil }
        let isMineGreater: Bool
        switch (mine, other) {
        // Two contents of one write are put right by the bytes, which a statement lacks: named as lost here.
        case (let mine?, let other?): isMineGreater = mine.version > other.version
        // What the other copy covers and does not hold was deleted and purged there.
        case (let mine?, nil): isMineGreater = !covered.covers(mine.dot)
        case (nil, let other?): isMineGreater = engine.state.vector.covers(other.dot)
        case (nil, nil): return nil
        }
        return KeyDifference(key: key, here: here, there: there, winner: isMineGreater ? .here : .there)
      }
    }
  }
}

extension Record {
  /// The record for a comparison, without value, context and transaction flag: an inline value is stated by
  /// its SHA-256 and size, like a large one.
  package var stated: Record {
    let content: Content
    switch self.content {
    case .inline(let value):
      content = .blob(BlobReference(hash: BlobHash(sha256: SHA256.hash(value)), size: UInt64(value.count)))
    case .blob(let blob): content = .blob(BlobReference(hash: blob.hash, size: blob.size))
    case .tombstone: content = .tombstone
    }
    return Record(version: version, deadline: deadline, type: type, key: key, content: content)
  }
}

extension Record? {
  fileprivate func content(at time: UInt64) -> KeyDifference.Content {
    guard let self else { return .nothing }
    guard self.isLive(at: time), case .blob(let blob) = self.content else {
      return .deleted(self.version.stamp)
    }
    return .value(
      KeyDifference.Content.Value(
        size: blob.size, type: self.type, stamp: self.version.stamp, deadline: self.deadline))
  }
}

extension KeyDifference.Content {
  fileprivate var hasValue: Bool {
    if case .value = self { return true }
    return false
  }
}

/// A large value that records of this copy refer to but whose bytes are missing here, and why.
package struct AbsentBlob: Hashable, Sendable {
  /// Why it is missing.
  package enum Reason: UInt8, Sendable {
    /// It is on its way, or was found corrupt or missing: sessions ask for it.
    case awaited = 0
    /// The policy left it out: it is fetched when it is read.
    case leftOut = 1
    /// It was evicted: it is fetched when it is read.
    case evicted = 2
  }

  /// The blob.
  package var blob: BlobReference
  /// Why it is missing.
  package var reason: Reason

  /// Both fields.
  package init(_ blob: BlobReference, _ reason: Reason) { (self.blob, self.reason) = (blob, reason) }

  static let prefix = StateKey.absentBlobPrefix
  static func key(_ hash: BlobHash) -> [UInt8] {
    var key: [UInt8] = []
    key.reserveCapacity(prefix.count + 32)
    key.append(contentsOf: prefix)
    hash.appendBytes(to: &key)
    return key
  }

  /// The key of its local record.
  var key: [UInt8] { Self.key(blob.hash) }

  /// The value of its local record (`schemas/blobs.md`).
  ///
  /// Without the last byte, which earlier versions neither write nor read, it is awaited.
  var value: [UInt8] {
    var writer = ByteWriter()
    writer.write(blob.size)
    writer.write(counted: blob.metadata)
    if reason != .awaited { writer.write(reason.rawValue) }
    return writer.bytes
  }

  init?(key: [UInt8], _ value: [UInt8]) {
    guard key.starts(with: Self.prefix), let hash = BlobHash(bytes: key.dropFirst(Self.prefix.count)) else {
      return nil
    }
    var reader = ByteReader(value)
    guard let size = try? reader.read(UInt64.self),
      let metadata = try? reader.readCounted(limit: Limits.blobMetadataBytes)
    else { return nil }
    let reason = (try? reader.read(UInt8.self)).flatMap { Reason(rawValue: $0) } ?? .awaited
    self.init(BlobReference(hash: hash, size: size, metadata: metadata), reason)
  }
}

/// The versions of the absence records of blobs at one moment.
package struct AbsenceVersions: Sendable {
  /// Locations of the local records, by their keys.
  fileprivate var places: [[UInt8]: Location] = [:]
}

// Absence records: which blobs are missing here, and why.
extension Store {
  /// All absence records, in the order of the blobs' hashes.
  private func allAbsent() throws(StoreError) -> [AbsentBlob] {
    try localMetadata.all(beginning: AbsentBlob.prefix).compactMap { AbsentBlob(key: $0.key, $0.value) }
      .sorted { $0.blob.hash < $1.blob.hash }
  }

  /// Blobs that are missing for this reason, in the order of their hashes.
  package func absentBlobs(_ reason: AbsentBlob.Reason) throws(StoreError) -> [BlobReference] {
    try allAbsent().filter { $0.reason == reason }.map(\.blob)
  }

  /// The absence record of a blob; nil if there is none.
  package func absence(of hash: BlobHash) throws(StoreError) -> AbsentBlob? {
    let key = AbsentBlob.key(hash)
    return try local(key).flatMap { AbsentBlob(key: key, $0) }
  }

  /// Blobs of a batch that are missing here, each once, and whether they are requested now.
  ///
  /// Present blobs are retained, so that a running sweep does not remove them, and made durable: the receipt
  /// for the batch covers them.
  func absent(of batch: IncomingBatch) throws(StoreError) -> [AbsentBlob] {
    var absent: [AbsentBlob] = []
    var places: [BlobHash: Int] = [:]
    var policy: BlobPolicy?
    // Batches other than lists carry their values inline.
    guard case .list(let records) = batch.records else { return [] }
    for item in records {
      guard case .blob(let blob) = item.record.content else { continue }
      if policy == nil { policy = try blobPolicy }
      let takes = policy?.takes(item.record.key, bytes: blob.size) ?? true
      if let place = places[blob.hash] {
        if takes, place >= 0 { absent[place].reason = .awaited }
        continue
      }
      guard try !blobs.retainDurably(blob.hash) else {
        places[blob.hash] = -1
        continue
      }
      places[blob.hash] = absent.count
      absent.append(AbsentBlob(blob, takes ? .awaited : .leftOut))
    }
    for index in absent.indices where absent[index].reason == .leftOut {
      // An existing record wins: the blob may be on its way for another key.
      if let known = try absence(of: absent[index].blob.hash) { absent[index].reason = known.reason }
    }
    return absent
  }

  /// The current versions of the absence records of these blobs. Take them before a blob arrives, and pass
  /// them to `recordArrived`.
  package func absenceVersions(of hashes: [BlobHash]) throws(StoreError) -> AbsenceVersions {
    let locals = try localMetadata
    var noted = AbsenceVersions()
    for key in hashes.map({ AbsentBlob.key($0) }) { noted.places[key] = locals.location(of: key) }
    return noted
  }

  /// Removes the absence records of blobs that have arrived.
  ///
  /// Records written since `before` stay: the blob may have been evicted again since.
  package func recordArrived(
    _ hashes: [BlobHash], unlessChangedSince before: AbsenceVersions? = nil
  ) throws(StoreError) {
    let noted = if let before { before } else { try absenceVersions(of: hashes) }
    let keys = hashes.map { AbsentBlob.key($0) }.filter { noted.places[$0] != nil }
    guard !keys.isEmpty else { return }
    // Need not be durable: an absence record of a blob that is here is ignored everywhere.
    try putLocalRecords(keys.map { ($0, nil) }, ifUnchangedSince: noted)
  }

  /// Sets local records; with `noted`, only those still at the location recorded there.
  ///
  /// Readers wait while an append is indexed, so the records are written in batches. Returns the end of the
  /// last append; nil if there was none.
  @discardableResult
  func putLocalRecords(
    _ notes: [(key: [UInt8], value: [UInt8]?)], ifUnchangedSince noted: AbsenceVersions? = nil
  ) throws(StoreError) -> UInt64? {
    var end: UInt64?
    for start in stride(from: 0, to: notes.count, by: Self.localRecordBatchSize) {
      let (_, tail) = try writes.append(limit: .max) { builder throws(StoreError) in
        let part = notes[start..<min(start + Self.localRecordBatchSize, notes.count)]
        let present = noted.map { noted in
          core.engine.withLock { engine in
            part.filter {
              noted.places[$0.key] != nil && noted.places[$0.key] == engine.localMetadata.location(of: $0.key)
            }
          }
        }
        for (key, value) in present ?? Array(part) { try builder.setLocal(key, value) }
      }
      end = tail
    }
    return end
  }

  private static let localRecordBatchSize = 256

  /// Removes the absence records of blobs that no record refers to, and of those that are here. Returns all
  /// references to blobs.
  func pruneAbsenceRecords() throws(StoreError) -> BlobReferences {
    // Read absence records before references: a record written in between, for a reference that has just
    // arrived, has another location.
    let noted = try allAbsent()
    let places = try absenceVersions(of: noted.map(\.blob.hash))
    let referenced = try referencesToBlobs()
    guard !noted.isEmpty else { return referenced }
    try blobs.refresh()
    var gone: [[UInt8]] = []
    for absent in noted {
      let hash = absent.blob.hash
      guard referenced.all[hash] != nil else {
        gone.append(absent.key)
        continue
      }
      // Presence is not enough: a blob that cannot be made durable counts as missing.
      if try blobs.isKnown(hash), try blobs.retainDurably(hash) { gone.append(absent.key) }
    }
    try putLocalRecords(gone.map { ($0, nil) }, ifUnchangedSince: places)
    return referenced
  }

  /// Counts of large values that are missing here, by reason.
  ///
  /// - Throws: `.closed`, `.forked`.
  public func absentValues() throws(StoreError) -> AbsentValues {
    let all = try allAbsent()
    guard !all.isEmpty else { return AbsentValues() }
    var found = AbsentValues()
    try blobs.refresh()
    // The record of a blob that arrived outside of a session is removed by the next session or trim.
    for absent in all {
      if try blobs.isKnown(absent.blob.hash) { continue }
      switch absent.reason {
      case .awaited:
        found.awaited += 1
        found.awaitedBytes += absent.blob.size
      case .leftOut:
        found.leftOut += 1
        found.leftOutBytes += absent.blob.size
      case .evicted:
        found.evicted += 1
        found.evictedBytes += absent.blob.size
      }
    }
    return found
  }
}

/// Counts of large values that records of a copy refer to but whose bytes are missing there, by reason.
public struct AbsentValues: Hashable, Sendable {
  /// Values on their way: the next session asks for them.
  public var awaited = 0
  /// Bytes of awaited values.
  public var awaitedBytes: UInt64 = 0
  /// Values left out by the policy: fetched when they are read.
  public var leftOut = 0
  /// Bytes of values left out.
  public var leftOutBytes: UInt64 = 0
  /// Values evicted to keep the limits: fetched when they are read.
  public var evicted = 0
  /// Bytes of evicted values.
  public var evictedBytes: UInt64 = 0

  /// No missing values.
  public init() {}
}

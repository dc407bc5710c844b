/// A large value that records of this copy name and whose bytes are not here, and why.
package struct AbsentBlob: Hashable, Sendable {
  /// Why it is not here.
  package enum Reason: UInt8, Sendable {
    /// It is on its way, or was found rotten or gone: sessions ask for it.
    case awaited = 0
    /// The policy leaves it out: it is fetched when it is read.
    case leftOut = 1
    /// It has left: likewise.
    case evicted = 2
  }

  /// Which.
  package var blob: BlobReference
  /// Why.
  package var reason: Reason

  /// Both fields.
  package init(_ blob: BlobReference, _ reason: Reason) { (self.blob, self.reason) = (blob, reason) }

  static let prefix = Array("want/".utf8)
  static func key(_ hash: BlobHash) -> [UInt8] {
    var key: [UInt8] = []
    key.reserveCapacity(prefix.count + 32)
    key.append(contentsOf: prefix)
    hash.appendBytes(to: &key)
    return key
  }

  /// The local key.
  var key: [UInt8] { Self.key(blob.hash) }

  /// Its value (`schemas/blobs.md`). Without the last byte, which earlier versions neither write nor look at, it is awaited.
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

/// Where it was noted at some moment that blobs are not here.
package struct AbsenceVersions: Sendable {
  /// By the local keys.
  fileprivate var places: [[UInt8]: Location] = [:]
}

// What is not here, and why.
extension Store {
  /// What is noted of blobs that are not here, in the order of their hashes.
  private func allAbsent() throws(StoreError) -> [AbsentBlob] {
    try localMetadata.all(beginning: AbsentBlob.prefix).compactMap { AbsentBlob(key: $0.key, $0.value) }
      .sorted { $0.blob.hash < $1.blob.hash }
  }

  /// Blobs that are not here and have this reason, in the order of their hashes.
  package func absentBlobs(_ reason: AbsentBlob.Reason) throws(StoreError) -> [BlobReference] {
    try allAbsent().filter { $0.reason == reason }.map(\.blob)
  }

  /// What is known of a blob that is not here; nil if nothing is noted of it.
  package func absence(of hash: BlobHash) throws(StoreError) -> AbsentBlob? {
    let key = AbsentBlob.key(hash)
    return try local(key).flatMap { AbsentBlob(key: key, $0) }
  }

  /// Blobs of a batch that are not here, each once, and whether they are taken now. Those that are here are counted on, so that
  /// no sweep that has begun takes them away.
  /// They are made durable: a receipt speaks for them, too.
  func absent(of batch: IncomingBatch) throws(StoreError) -> [AbsentBlob] {
    var absent: [AbsentBlob] = []
    var places: [BlobHash: Int] = [:]
    var policy: BlobPolicy?
    // Those that are not of a list have their values with them.
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
      // What is known of it already counts: it may be on its way for another key.
      if let known = try absence(of: absent[index].blob.hash) { absent[index].reason = known.reason }
    }
    return absent
  }

  /// What is noted of these now. Before one of them comes, for who notes then that it has.
  package func absenceVersions(of hashes: [BlobHash]) throws(StoreError) -> AbsenceVersions {
    let locals = try localMetadata
    var noted = AbsenceVersions()
    for key in hashes.map({ AbsentBlob.key($0) }) { noted.places[key] = locals.location(of: key) }
    return noted
  }

  /// Notes that blobs have come that were not here. What is noted since `before` stays: one may have left again meanwhile.
  package func recordArrived(
    _ hashes: [BlobHash], unlessChangedSince before: AbsenceVersions? = nil
  ) throws(StoreError) {
    let noted = if let before { before } else { try absenceVersions(of: hashes) }
    let keys = hashes.map { AbsentBlob.key($0) }.filter { noted.places[$0] != nil }
    guard !keys.isEmpty else { return }
    // Nothing waits for it: what is noted and is here is passed over everywhere.
    try putLocalRecords(keys.map { ($0, nil) }, ifUnchangedSince: noted)
  }

  /// Sets notes of this copy's own, with `noted` only those that still lie where that says. Readers wait while what was appended at
  /// once is entered into the index, so it is not all of them. Returns up to where they reach; nil if there are none.
  @discardableResult
  func putLocalRecords(
    _ notes: [(key: [UInt8], value: [UInt8]?)], ifUnchangedSince noted: AbsenceVersions? = nil
  ) throws(StoreError) -> UInt64? {
    var end: UInt64?
    for start in stride(from: 0, to: notes.count, by: Self.localRecordBatchSize) {
      let (_, tail) = try append(limit: .max) { composer throws(StoreError) in
        let part = notes[start..<min(start + Self.localRecordBatchSize, notes.count)]
        let present = noted.map { noted in
          engine.withLock { engine in
            part.filter {
              noted.places[$0.key] != nil && noted.places[$0.key] == engine.localMetadata.location(of: $0.key)
            }
          }
        }
        for (key, value) in present ?? Array(part) { try composer.setLocal(key, value) }
      }
      end = tail
    }
    return end
  }

  private static let localRecordBatchSize = 256

  /// Forgets what is noted of blobs that no record refers to any more, and of those that are here. Returns what records refer to.
  func pruneAbsenceRecords() throws(StoreError) -> BlobReferences {
    // First what is noted, then what is referred to: what is noted anew meanwhile, for a record that has just come, lies elsewhere.
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
      // Known is not enough: what could not be made durable is as good as not here.
      if try blobs.isKnown(hash), try blobs.retainDurably(hash) { gone.append(absent.key) }
    }
    try putLocalRecords(gone.map { ($0, nil) }, ifUnchangedSince: places)
    return referenced
  }

  /// Which large values are not here, and why.
  ///
  /// - Throws: `.closed`, `.forked`.
  public func absentValues() throws(StoreError) -> AbsentValues {
    let all = try allAbsent()
    guard !all.isEmpty else { return AbsentValues() }
    var found = AbsentValues()
    try blobs.refresh()
    // What has come otherwise than in a session is forgotten by the next one, or by the next trim.
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

/// Large values that records of a copy name and whose bytes are not there, and why.
public struct AbsentValues: Hashable, Sendable {
  /// On their way: the next session asks for them.
  public var awaited = 0
  /// Bytes of them.
  public var awaitedBytes: UInt64 = 0
  /// Left out by the policy: fetched when they are read.
  public var leftOut = 0
  /// Bytes of them.
  public var leftOutBytes: UInt64 = 0
  /// Left, to keep the limits: fetched when they are read.
  public var evicted = 0
  /// Bytes of them.
  public var evictedBytes: UInt64 = 0

  /// None.
  public init() {}
}

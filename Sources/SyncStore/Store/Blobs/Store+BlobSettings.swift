// Durable settings of a copy for its large values.
extension Store {
  private static let settingsKey = Array("blobs/settings".utf8)
  private static let trimmedKey = Array("blobs/trimmed".utf8)

  /// Which large values this copy receives with the records that refer to them; common to all processes that
  /// use the store.
  ///
  /// - Throws: `.newerFormat` if a newer program has set it; `.closed`, `.forked`.
  public var blobPolicy: BlobPolicy { get throws(StoreError) { try blobSettings().policy } }

  /// How much of the large values this copy keeps.
  ///
  /// - Throws: `.newerFormat` if a newer program has set it; `.closed`, `.forked`.
  public var blobLimits: BlobLimits { get throws(StoreError) { try blobSettings().limits } }

  func blobSettings() throws(StoreError) -> BlobSettings {
    guard let bytes = try local(Self.settingsKey) else { return BlobSettings() }
    do throws(DecodingFailure) { return try BlobSettings(bytes) } catch {
      throw StoreError(
        .newerFormat,
        "what is kept about large values cannot be read (\(error.description)): update this program",
        path: path)
    }
  }

  /// Changes the policy, durably. Missing values that it now covers, including evicted ones, are requested in
  /// the next session.
  ///
  /// - Throws: `.outOfBounds` for more than `BlobPolicy.maximumPrefixes` prefixes, or one above
  ///   `Limits.keyBytes`; `.newerFormat` if a newer program has written the settings; as `put`.
  public func setBlobPolicy(_ policy: BlobPolicy) throws(StoreError) {
    var settings = try blobSettings()
    guard settings.policy != policy else { return }
    settings.policy = policy
    try set(settings)
    try requestEagerBlobs(policy)
  }

  /// Changes the limits, durably. They are met soon if a `Node` runs and enough members can be asked.
  ///
  /// - Throws: `.outOfBounds` for copies other than 1 to `Limits.blobCopies`; `.newerFormat` if a newer
  ///   program has written the settings; as `put`.
  public func setBlobLimits(_ limits: BlobLimits) throws(StoreError) {
    var settings = try blobSettings()
    guard settings.limits != limits else { return }
    settings.limits = limits
    try set(settings)
  }

  private func set(_ settings: BlobSettings) throws(StoreError) {
    try setLocal(Self.settingsKey, try settings.checked().encoded)
  }

  /// Persists the settings given at opening.
  func persistBlobSettings(from configuration: Configuration) throws(StoreError) {
    guard isWritable else { return }
    if let limits = configuration.blobLimits { try setBlobLimits(limits) }
    if let policy = configuration.blobPolicy { try setBlobPolicy(policy) }
  }

  private func requestEagerBlobs(_ policy: BlobPolicy) throws(StoreError) {
    let left = try absentBlobs(.leftOut) + absentBlobs(.evicted)
    guard !left.isEmpty else { return }
    var wanted = Set<BlobHash>()
    if policy.takesAll {
      wanted = Set(left.map(\.hash))
    } else {
      let snapshot = try snapshot()
      defer { snapshot.close() }
      try StoreError.only {
        _ = try snapshot.scanEntries { entry in
          if let blob = entry.blob, policy.takes(entry.key.bytes, bytes: blob.size) {
            wanted.insert(blob.hash)
          }
        }
      }
    }
    let absent = left.filter { wanted.contains($0.hash) }.map { AbsentBlob($0, .awaited) }
    if !absent.isEmpty { try recordAbsent(absent) }
  }

  // MARK: Last trim

  /// Result and time, in milliseconds since 1970, of the last attempt to keep the limits; nil if there was
  /// none.
  ///
  /// - Throws: `.closed`, `.forked`.
  public func lastBlobTrim() throws(StoreError) -> (time: UInt64, report: BlobTrimReport)? {
    guard let bytes = try local(Self.trimmedKey) else { return nil }
    var reader = ByteReader(bytes)
    var report = BlobTrimReport()
    do throws(DecodingFailure) {
      guard try reader.read(UInt8.self) >= 1 else { return nil }
      let time = try reader.read(UInt64.self)
      report.holds = try reader.read(UInt8.self) == 1
      report.evicted = Int(clamping: try reader.readVariable())
      report.evictedBytes = try reader.readVariable()
      report.tooFewHolders = Int(clamping: try reader.readVariable())
      report.tooFewHoldersBytes = try reader.readVariable()
      report.kept = Int(clamping: try reader.readVariable())
      report.keptBytes = try reader.readVariable()
      report.used = Int(clamping: try reader.readVariable())
      return (time, report)
    } catch {
      return nil
    }
  }

  /// Stores the result of an attempt to keep the limits, for `status`.
  package func recordBlobTrim(_ report: BlobTrimReport) throws(StoreError) {
    var writer = ByteWriter()
    writer.write(UInt8(1))
    writer.write(environment.now())
    writer.write(UInt8(report.holds ? 1 : 0))
    for count in [
      UInt64(report.evicted), report.evictedBytes, UInt64(report.tooFewHolders), report.tooFewHoldersBytes,
      UInt64(report.kept), report.keptBytes, UInt64(report.used),
    ] {
      writer.writeVariable(count)
    }
    // Do not write an unchanged result.
    if let last = try local(Self.trimmedKey), last.dropFirst(9) == writer.bytes.dropFirst(9) { return }
    try setLocal(Self.trimmedKey, writer.bytes)
  }
}

import SyncStore

/// Writes the values of a range of keys as files.
///
/// A key that cannot be a file below the directory, or whose value cannot be read or written, is reported as
/// a failure; the others are written.
struct Exporter {
  let store: Store
  let invocation: Invocation
  /// Prefix that is removed from each key to form its path.
  let prefix: [UInt8]
  var failures: ItemFailures
  /// Number of files written, and their bytes.
  private(set) var files = 0
  private(set) var bytes: UInt64 = 0

  init(_ store: Store, _ invocation: Invocation, prefix: [UInt8]) {
    (self.store, self.invocation, self.prefix) = (store, invocation, prefix)
    failures = ItemFailures(invocation)
  }

  /// Writes all files below `directory` and returns the seconds that took; everything is durable on return.
  ///
  /// With `--strict` nothing is written if one of the keys cannot be a file.
  mutating func run(into directory: Argument) throws -> Double {
    let totalBytes = try scanSizes(for: directory)
    let writer = try TreeWriter(directory.bytes)
    var progress = Progress("export", totalBytes: totalBytes, enabled: invocation.showsProgress)
    defer { progress.finish() }
    var nested = NestedPaths()
    let losses = try store.snapshot().scanReadable(KeyRange(prefix: prefix)) { entry in
      let path = Array(entry.key.bytes.dropFirst(prefix.count))
      if let objection = TreeWriter.objection(to: path) ?? nested.objection(to: path) {
        return try failures.record(Self.refusal(of: entry.key, objection: objection, directory: directory))
      }
      guard try export(entry, as: path, by: writer) else { return }
      files += 1
      bytes += entry.size
      progress.update(bytes: bytes, Text.count(files, noun: "file"))
    }.doubts
    try writer.finish()
    try failures.record(losses)
    return progress.seconds
  }

  /// The total bytes of all values. Strict exports check here which keys cannot be files.
  private func scanSizes(for directory: Argument) throws -> UInt64 {
    var (totalBytes, nested): (UInt64, NestedPaths) = (0, NestedPaths())
    _ = try store.snapshot().scanReadable(KeyRange(prefix: prefix)) { entry in
      totalBytes += entry.size
      guard failures.isStrict else { return }
      let path = Array(entry.key.bytes.dropFirst(prefix.count))
      if let objection = TreeWriter.objection(to: path) ?? nested.objection(to: path) {
        throw Self.refusal(of: entry.key, objection: objection, directory: directory)
      }
    }
    return totalBytes
  }

  private static func refusal(of key: Key, objection: String, directory: Argument) -> Failure {
    Failure(
      .refused,
      "export \(Text.printable(key.bytes)): \(objection): no file of that name can lie in \(directory.shown): "
        + "use \"sync-cli get KEY --output F\" for it")
  }

  /// False if the key was deleted concurrently, or was recorded as a failure.
  private mutating func export(_ entry: Entry, as path: [UInt8], by writer: TreeWriter) throws -> Bool {
    do {
      if entry.blob == nil {
        guard let value = try store.get(entry.key) else { return false }
        try writer.make(path, holding: value.bytes)
        return true
      }
      return try writer.make(path) { try store.export(entry.key, toFileAt: $0) }
    } catch let error as StoreError where error.code == .blobUnavailable {
      try failures.record(TierCommands.unfetched(entry.key, invocation: invocation, error: error))
    } catch let error as StoreError {
      try failures.record(entry.key, error)
    } catch let failure as Failure where !failure.endsCommand {
      try failures.record(
        Failure(failure.code, "export \(Text.printable(entry.key.bytes)): \(failure.message)"))
    }
    return false
  }
}

extension Store {
  /// Rewrites the blobs whose encryption is not the wanted one: under an older master key, in the clear, or
  /// encrypted while the store is being decrypted.
  ///
  /// Damaged blobs are set aside, to be fetched again. Returns the number rewritten.
  ///
  /// - Throws: `.diskFull`; a later call resumes.
  func renewBlobs() throws(StoreError) -> Int {
    guard try environment.storage.status(path + "/" + StoreLayout.blobs) != nil else { return 0 }
    let renewal = try blobs.reencryptAll()
    for blob in try references(toNamed: renewal.damaged, blobs.keys.present()) { try want(blob) }
    return renewal.reencrypted
  }

  /// References of present records to blobs whose file names are among `names`.
  func references(toNamed names: Set<BlobHash>, _ keys: BlobKeys?) throws(StoreError) -> [BlobReference] {
    guard !names.isEmpty else { return [] }
    return try reading { engine throws(StoreError) in
      var found: [BlobReference] = []
      for location in try engine.locations() {
        guard let record = try? engine.record(at: location), case .blob(let blob) = record.content else {
          continue
        }
        let isNamed =
          names.contains(blob.hash) || keys.map { names.contains($0.name(of: blob.hash)) } ?? false
        if isNamed { found.append(blob) }
      }
      return found
    }
  }
}

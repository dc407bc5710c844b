extension Store {
  /// Writes the objects of the blob tier anew that are not sealed as they are to be now: under an older master key, or not at
  /// all; or sealed where the store becomes plain. What is damaged is set aside, to be fetched again. Returns how many it were.
  ///
  /// - Throws: `.diskFull`: it goes on later.
  func renewBlobs() throws(StoreError) -> Int {
    guard try environment.storage.status(path + "/" + StoreLayout.blobs) != nil else { return 0 }
    let renewal = try blobs.reencryptAll()
    for blob in try references(toNamed: renewal.damaged, blobs.keys.present()) { try want(blob) }
    return renewal.reencrypted
  }

  /// References of present records to blobs that have one of these names on the disk.
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

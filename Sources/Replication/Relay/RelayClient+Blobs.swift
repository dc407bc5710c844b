internal import SyncStore

/// Large values in a relay: written before the entry that refers to them (rule L1), read after it.
extension RelayClient {
  /// Values, or groups of one, moved at the same time.
  private static let blobsInFlight = 8
  /// Names above which a listing is read, in place of a request for each.
  private static let probes = 64
  /// Bytes of values of one step of reading: they are made durable together.
  private static let stepBytes: UInt64 = 64 << 20

  // MARK: Writing

  /// Writes the values that are held here and not in the relay. Values that are not held here are left to
  /// members that hold them: heads ask for them (`RelayHead.wanted`).
  func publish(
    _ blobs: [BlobReference], with keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) {
    guard !blobs.isEmpty else { return }
    let held = try await held(blobs)
    let there = try await present(held.map { keys.format.blobName($0.hash) })
    try await write(held.filter { !there.contains(keys.format.blobName($0.hash)) }, with: keys, &report)
  }

  /// Those of the values that are held here and can go through a relay, each once.
  private func held(_ blobs: [BlobReference]) async throws(ReplicationError) -> [BlobReference] {
    var known: Set<BlobHash> = []
    let distinct = blobs.filter { known.insert($0.hash).inserted && $0.size <= RelayLimits.blobBytes }
    return try await storeWork { store throws(StoreError) in
      var held: [BlobReference] = []
      for blob in distinct where try store.blobs.has(blob) { held.append(blob) }
      return held
    }
  }

  /// Writes values that are held here; of large ones the groups that are not there.
  private func write(
    _ held: [BlobReference], with keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) {
    let small = held.filter { $0.size <= RelayLimits.wholeBlobBytes }
    for large in held where large.size > RelayLimits.wholeBlobBytes {
      try await publish(inGroups: large, with: keys)
    }
    _ = try await inParallel(small, limit: Self.blobsInFlight) { blob throws(ReplicationError) in
      let bytes = try await self.storeWork { store throws(StoreError) in try store.blobs.read(blob) }
      try await self.write(bytes, as: keys.format.blobName(blob.hash), keys)
    }
    report.sentBlobs += held.count
  }

  /// Writes the groups of a large value that are not there, then its table, which makes it exist.
  private func publish(
    inGroups blob: BlobReference, with keys: Keys
  ) async throws(ReplicationError) {
    let recipe = try await storeWork { store throws(StoreError) in
      try store.blobs.recipe(of: blob, from: 0, bytes: blob.size)
    }
    let cut = RelayBlobTable.cut(recipe.chunks)
    var groups: [RelayBlobTable.Group] = []
    var parts: [BlobPart] = []
    var offset: UInt64 = 0
    for chunks in cut {
      let count = UInt64(chunks.reduce(0) { $0 + $1.count })
      parts.append(BlobPart(offset: offset, count: count))
      offset += count
    }
    let hashes = try await inParallel(parts, limit: Self.blobsInFlight) { part throws(ReplicationError) in
      BlobHash(sha256: SHA256.hash(try await self.bytes(of: blob, part)))
    }
    let there = try await present(hashes.map { keys.format.blobName($0) })
    var begun: Set<BlobHash> = []
    let missing = zip(parts, hashes).filter { pair in
      !there.contains(keys.format.blobName(pair.1)) && begun.insert(pair.1).inserted
    }
    _ = try await inParallel(missing, limit: Self.blobsInFlight) { pair throws(ReplicationError) in
      let bytes = try await self.bytes(of: blob, pair.0)
      try await self.write(bytes, as: keys.format.blobName(pair.1), keys)
    }
    for (chunks, hash) in zip(cut, hashes) {
      groups.append(RelayBlobTable.Group(hash: hash, chunks: Array(chunks)))
    }
    let name = keys.format.blobName(blob.hash)
    try await write(RelayBlobTable(groups: groups).payloads, as: name, keys)
  }

  /// Bytes of a value that is held here.
  private func bytes(of blob: BlobReference, _ part: BlobPart) async throws(ReplicationError) -> [UInt8] {
    let bytes = try await storeWork { store throws(StoreError) in
      try store.blobs.read(blob.hash, offset: part.offset, count: Int(part.count))
    }
    guard bytes.count == Int(part.count) else {
      throw ReplicationError(
        .unavailable, "\(name): large value \(blob.hash) was removed while it was published: push again")
    }
    return bytes
  }

  private func write(
    _ bytes: [UInt8], as name: String, _ keys: Keys
  ) async throws(ReplicationError) {
    try await write([[RelayBlobForm.bytes.rawValue] + bytes], as: name, keys)
  }

  /// Writes an object of these payloads. It is written even if it is there: a doomed one would go otherwise.
  private func write(
    _ payloads: [[UInt8]], as object: String, _ keys: Keys
  ) async throws(ReplicationError) {
    let bytes = try await workers.run { () throws(ReplicationError) in
      var writer = ByteWriter(capacity: payloads.reduce(0) { $0 + $1.count + 128 })
      for (index, payload) in payloads.enumerated() {
        let batch = try keys.encrypt(payload, as: object, kind: .relayBlob, index: UInt64(index))
        writer.write(UInt32(batch.count))
        writer.write(raw: batch)
      }
      return writer.bytes
    }
    _ = try await put(object, bytes, if: .always)
    memory.withLock { _ = $0.blobsThere.insert(object) }
  }

  /// Which of these objects are in the relay, and not doomed.
  private func present(_ names: [String]) async throws(ReplicationError) -> StringSet {
    let (known, doomed) = memory.withLock { memory in
      (memory.blobsThere, StringSet(memory.heads.values.flatMap(\.head.doomed).map(\.name)))
    }
    let asked = names.filter { !known.contains($0) && !doomed.contains($0) }
    let found: StringSet
    if asked.count > Self.probes {
      found = StringSet(try await list(RelayName.blobs).map(\.name))
    } else {
      let answers = try await inParallel(asked, limit: Self.readsInFlight) { name throws(ReplicationError) in
        try await self.exists(name)
      }
      found = StringSet(zip(asked, answers).filter(\.1).map(\.0))
    }
    memory.withLock { memory in
      for name in asked where found.contains(name) { memory.blobsThere.insert(name) }
    }
    return StringSet(names.filter { (known.contains($0) || found.contains($0)) && !doomed.contains($0) })
  }

  /// Writes values that other members ask for and that are held here.
  func publishWanted(
    in view: RelayView, with keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) {
    let wanted = view.streams.values.filter { $0.standing.isMember }.flatMap(\.head.wanted)
    let held = try await held(wanted)
    guard !held.isEmpty else { return }
    // Objects may be gone since: of a large value also a group alone, so that its table tells nothing.
    memory.withLock { $0.blobsThere = [] }
    let large = held.filter { $0.size > RelayLimits.wholeBlobBytes }
    try await publish(held.filter { $0.size <= RelayLimits.wholeBlobBytes }, with: keys, &report)
    try await write(large, with: keys, &report)
  }

  // MARK: Reading

  /// Reads the values that records here refer to and that are not here. Those that the relay does not have
  /// either are counted, and asked for with the next head.
  func fetchBlobs(_ format: RelayFormat, _ report: inout RelayReport) async throws(ReplicationError) {
    let needed = try await storeWork { store throws(StoreError) in try store.blobsToFetch() }
    guard !needed.blobs.isEmpty else { return memory.withLock { $0.wanted = [] } }
    let keys = try await keys(format)
    var missing: [BlobReference] = []
    var step: [BlobReference] = []
    let blobs = needed.blobs.filter { $0.size <= RelayLimits.blobBytes }
    for (index, blob) in blobs.enumerated() {
      guard blob.size <= RelayLimits.wholeBlobBytes else {
        let isHere = try await fetch(inGroups: blob, with: keys, &report)
        if isHere { report.receivedBlobs += 1 } else { missing.append(blob) }
        continue
      }
      step.append(blob)
      let isLast = index + 1 == blobs.count
      guard isLast || step.reduce(0, { $0 + $1.size }) >= Self.stepBytes else { continue }
      missing += try await fetch(whole: step, with: keys, &report)
      step = []
    }
    missing += try await fetch(whole: step, with: keys, &report)
    missing += needed.blobs.filter { $0.size > RelayLimits.blobBytes }
    report.missingBlobs = missing.count
    // Those that beaten values alone refer to come last: no member may have them any more.
    let wanted =
      missing.filter { !needed.spare.contains($0.hash) } + missing.filter { needed.spare.contains($0.hash) }
    memory.withLock { $0.wanted = Array(wanted.prefix(RelayLimits.wanted)) }
  }

  /// Reads values that are one object each, and makes them durable together. Returns those that are not
  /// there.
  private func fetch(
    whole blobs: [BlobReference], with keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> [BlobReference] {
    guard !blobs.isEmpty else { return [] }
    let noted = try await storeWork { store throws(StoreError) in
      try store.absenceVersions(of: blobs.map(\.hash))
    }
    let outcomes = try await inParallel(blobs, limit: Self.blobsInFlight) { blob throws(ReplicationError) in
      let name = keys.format.blobName(blob.hash)
      let reading = try await self.readBlob(name, limit: RelayLimits.wholeBlobBytes + 4096, keys)
      guard case .success(let payloads) = reading else { return reading.map { _ in } }
      let isRight = try await self.storeWork { store throws(StoreError) in
        guard let bytes = RelayBlobForm.bytes(in: payloads) else { return false }
        return try store.blobs.put(Array(bytes), arrivedAs: blob)
      }
      return isRight ? .success(()) : .failure(.unreadable(Self.otherContent))
    }
    var (arrived, missing): ([BlobReference], [BlobReference]) = ([], [])
    for (blob, outcome) in zip(blobs, outcomes) {
      switch outcome {
      case .success: arrived.append(blob)
      case .failure(let why):
        missing.append(blob)
        if case .unreadable(let reason) = why { report.setAside(keys.format.blobName(blob.hash), reason) }
      }
    }
    let done = arrived
    try await storeWork { store throws(StoreError) in
      try store.blobs.makeDurable(done)
      try store.recordArrived(done.map(\.hash), unlessChangedSince: noted)
    }
    report.receivedBlobs += done.count
    return missing
  }

  private static let otherContent =
    "its bytes are not those of the large value: a member may have forged it, or it was damaged"

  /// Assembles a large value: fetches those of its groups whose bytes no other value here has. Continues
  /// where an earlier attempt ended. False if the relay does not have all of it.
  private func fetch(
    inGroups blob: BlobReference, with keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    let name = keys.format.blobName(blob.hash)
    let table: RelayBlobTable
    switch try await readBlob(name, limit: RelayLimits.tableBytes, keys) {
    case .failure(let why):
      if case .unreadable(let reason) = why { report.setAside(name, reason) }
      return false
    case .success(let payloads):
      do throws(DecodingFailure) { table = try RelayBlobTable(payloads: payloads, size: blob.size) } catch {
        report.setAside(name, error.description)
        return false
      }
    }
    let match = try await storeWork { store throws(StoreError) in try store.blobs.match(table.recipe) }
    guard try await assemble(blob, by: table, having: match, with: keys, &report) else { return false }
    do throws(ReplicationError) {
      try await storeWork { store throws(StoreError) in
        let noted = try store.absenceVersions(of: [blob.hash])
        try store.blobs.complete(blob, durable: true)
        try store.recordArrived([blob.hash], unlessChangedSince: noted)
      }
      return true
    } catch {
      guard error.store?.code == .damaged else { throw error }
      report.setAside(name, Self.otherContent)
      return false
    }
  }

  /// The groups of a large value in the relay; nil if its object is missing or cannot be read.
  func groups(
    of blob: BlobReference, as object: String, with keys: Keys
  ) async throws(ReplicationError) -> [RelayBlobTable.Group]? {
    guard case .success(let payloads) = try await readBlob(object, limit: RelayLimits.tableBytes, keys) else {
      return nil
    }
    return try? RelayBlobTable(payloads: payloads, size: blob.size).groups
  }

  private func assemble(
    _ blob: BlobReference, by table: RelayBlobTable, having match: BlobMatch, with keys: Keys,
    _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    var groups = table.groups[...]
    var start: UInt64 = 0
    while true {
      let held = try await storeWork { store throws(StoreError) in
        try store.blobs.assemble(blob.hash, match, upTo: blob.size)
      }
      while let first = groups.first, start + UInt64(first.count) <= held {
        start += UInt64(first.count)
        groups.removeFirst()
      }
      guard held < blob.size else { return true }
      // The next groups that nothing here has all of.
      let next = Array(groups.prefix(Self.blobsInFlight))
      let readings = try await inParallel(next, limit: Self.blobsInFlight) { group throws(ReplicationError) in
        try await self.readBlob(
          keys.format.blobName(group.hash), limit: RelayLimits.maximumGroupBytes + 4096, keys)
      }
      for (group, reading) in zip(next, readings) {
        let object = keys.format.blobName(group.hash)
        guard case .success(let payloads) = reading else {
          if case .failure(.unreadable(let reason)) = reading { report.setAside(object, reason) }
          return false
        }
        guard let bytes = RelayBlobForm.bytes(in: payloads), bytes.count == group.count else {
          report.setAside(object, Self.otherContent)
          return false
        }
        let offset = start
        try await storeWork { store throws(StoreError) in
          let held = try store.blobs.partialSize(blob.hash)
          guard held >= offset, held < offset + UInt64(group.count) else { return }
          try store.blobs.append(Array(bytes.dropFirst(Int(held - offset))), to: blob.hash, at: held)
        }
        start += UInt64(group.count)
      }
      groups = groups.dropFirst(next.count)
    }
  }

  /// Why an object of a large value cannot be used.
  private enum BlobFailure: Error {
    case absent
    case unreadable(String)
  }

  /// Reads the payloads of an object under `b/`.
  private func readBlob(
    _ object: String, limit: some BinaryInteger, _ keys: Keys
  ) async throws(ReplicationError) -> Result<[[UInt8]], BlobFailure> {
    guard case .found(let content) = try await get(object, limit: Int(limit)) else {
      return .failure(.absent)
    }
    return try await workers.run { () throws(ReplicationError) in
      do throws(ReplicationError) {
        var payloads: [[UInt8]] = []
        for (index, batch) in try Self.batches(in: content.bytes, of: object).enumerated() {
          payloads.append(
            try keys.decrypt(batch, as: object, kind: .relayBlob, index: UInt64(index)))
        }
        return .success(payloads)
      } catch { return .failure(.unreadable(error.message)) }
    }
  }
}

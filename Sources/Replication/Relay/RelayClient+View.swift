internal import SyncStore

/// Reading what the relay has: heads, runs, tables of checkpoints.
extension RelayClient {
  /// The most bytes of an encrypted head, run or table.
  private static let objectBytes = RelayLimits.objectBytes + BatchCodec.overheadBytes
  /// Objects read at the same time.
  static let readsInFlight = 16

  /// Keys for reading and writing, and the rights of the members.
  struct Keys: Sendable {
    var format: RelayFormat
    var seal: RelaySeal
    var ring: GroupKeyRing
    /// The members, and the inviter before its own record has arrived.
    var standings: [DeviceID: RelayView.Standing]

    func encrypt(
      _ payload: [UInt8], as name: String, kind: BatchContext.Kind = .relayObject, index: UInt64 = 0
    ) throws(ReplicationError) -> [UInt8] {
      try seal.encrypt(
        payload, as: name, kind: kind, index: index, keys: ring,
        randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
    }

    func decrypt(
      _ bytes: [UInt8], as name: String, kind: BatchContext.Kind = .relayObject, index: UInt64 = 0
    ) throws(ReplicationError) -> [UInt8] {
      try seal.decrypt(bytes, as: name, kind: kind, index: index, keys: ring)
    }

    func standing(of device: DeviceID) -> RelayView.Standing { standings[device] ?? .stranger }

    /// Number of devices that have published and that are neither members nor revoked.
    func unknownDevices(in view: RelayView) -> Int {
      Set(view.streams.values.filter { $0.head.last != nil }.map(\.head.device))
        .subtracting(standings.keys).count
    }
  }

  func keys(_ format: RelayFormat) async throws(ReplicationError) -> Keys {
    let (store, identity) = (store, identity)
    let standings = try await workers.run { () throws(ReplicationError) in
      let membership = Membership(store)
      var standings: [DeviceID: RelayView.Standing] = [:]
      for member in try membership.members() {
        switch member.right {
        case .readWrite: standings[member.device] = .writer
        case .readOnly: standings[member.device] = .reader
        case .revoked: standings[member.device] = .revoked
        }
      }
      // The inviter or introducer, and this copy, before their own records have arrived.
      let own = [try membership.introducer(), identity.id]
      for device in (try membership.peers().map(\.device) + own).compactMap({ $0 })
      where standings[device] == nil {
        standings[device] = .writer
      }
      return standings
    }
    return Keys(
      format: format, seal: RelaySeal(relay: format.relay, store: store.id), ring: try await ring(),
      standings: standings)
  }

  /// Reads the heads that have changed. Those that `progress` names are asked for by name if the listing
  /// leaves them out: a listing is never taken to be complete.
  func readHeads(
    _ progress: RelayProgress, _ keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> RelayView {
    let listed = try await list(RelayName.heads)
    let requests = Set(listed.compactMap { RelayName.invitation(ofRequest: $0.name) })
    let known = memory.withLock { memory in
      memory.joinRequests = requests
      return memory.heads
    }
    var wanted = Set(progress.seen.keys).union(known.keys)
    if let own = progress.stream, progress.last != nil || progress.pending != nil { wanted.insert(own) }
    for entry in listed {
      guard let stream = RelayName.stream(ofHead: entry.name) else { continue }
      // An unchanged version in the listing saves the request.
      if let version = entry.version, known[stream]?.version == version {
        wanted.remove(stream)
      } else {
        wanted.insert(stream)
      }
    }
    var absent: Set<StreamID> = []
    for (stream, reading) in try await readAll(wanted.sorted(), known.mapValues(\.version)) {
      switch reading {
      case .unchanged: continue
      case .absent:
        absent.insert(stream)
        memory.withLock { $0.heads[stream] = nil }
      case .found(let content):
        do throws(ReplicationError) {
          let head = try Self.head(content.bytes, of: stream, keys)
          memory.withLock { $0.heads[stream] = (head, content.version) }
        } catch {
          if error.code == .cryptography, let epoch = BatchCodec.epoch(of: content.bytes) {
            memory.withLock { _ = $0.unknownEpochs.insert(epoch) }
          }
          report.setAside(RelayName.head(stream), error.message)
          guard progress.ownStreams.contains(stream) else { continue }
          // The own one is as good as lost: a new stream takes its place.
          absent.insert(stream)
          memory.withLock { memory in
            memory.heads[stream] = nil
            memory.damagedHeads.insert(stream)
          }
        }
      }
    }
    memory.withLock { $0.view.absentHeads = absent }
    return renewView(keys)
  }

  /// The view with the heads as they are known, and the rights that members have now.
  func renewView(_ keys: Keys) -> RelayView {
    memory.withLock { memory in
      memory.view.checkpoints = memory.view.checkpoints.filter { $0.value != nil }
      memory.view.streams = memory.heads.mapValues { known in
        var stream =
          memory.view.streams[known.head.stream] ?? RelayView.Stream(head: known.head, standing: .stranger)
        (stream.head, stream.standing) = (known.head, keys.standing(of: known.head.device))
        // Missing objects may have come since.
        (stream.missingRuns, stream.missingEntries) = ([], [])
        return stream
      }
      return memory.view
    }
  }

  private func readAll(
    _ streams: [StreamID], _ known: [StreamID: ObjectVersion?]
  ) async throws(ReplicationError) -> [(StreamID, ObjectReading)] {
    let readings = try await inParallel(streams, limit: Self.readsInFlight) {
      stream throws(ReplicationError) in
      try await self.get(RelayName.head(stream), unless: known[stream] ?? nil, limit: Self.objectBytes)
    }
    return Array(zip(streams, readings))
  }

  /// Decrypts a head and checks its signature.
  static func head(
    _ bytes: [UInt8], of stream: StreamID, _ keys: Keys
  ) throws(ReplicationError) -> RelayHead {
    let name = RelayName.head(stream)
    let payload = try keys.decrypt(bytes, as: name)
    let signed = Array(payload.dropLast(DeviceIdentity.signatureBytes))
    let head = try decoding(name) { () throws(DecodingFailure) in try RelayHead(signedBytes: signed) }
    guard head.stream == stream else {
      throw ReplicationError(.protocolViolation, "another head in its place: that of stream \(head.stream)")
    }
    let signature = payload.suffix(DeviceIdentity.signatureBytes)
    guard
      DeviceIdentity.verifies(
        signature, of: Self.signedText(signed, keys.seal.relay), publicKey: head.publicKey)
    else { throw ReplicationError(.protocolViolation, "its signature is wrong: a member may have forged it") }
    return head
  }

  private static let signaturePurpose = Array("syncstore relay head v1".utf8)

  /// The bytes that the signature of a head is over.
  static func signedText(_ head: [UInt8], _ relay: RelayID) -> [UInt8] {
    signaturePurpose + relay.bytes + head
  }

  static func decoding<Answer>(
    _ name: String, _ body: () throws(DecodingFailure) -> Answer
  ) throws(ReplicationError) -> Answer {
    do throws(DecodingFailure) { return try body() } catch {
      throw ReplicationError(.protocolViolation, "\(name): \(error.description)")
    }
  }

  /// Reads an object that never changes. Nil if it is missing, damaged or another one: then it is set aside.
  private func readFixed(
    _ name: String, fingerprint: [UInt8], limit: Int, _ report: inout RelayReport
  ) async throws(ReplicationError) -> [UInt8]? {
    guard case .found(let content) = try await get(name, limit: limit) else {
      report.setAside(name, "it is not there")
      return nil
    }
    guard RelaySeal.fingerprint(content.bytes) == fingerprint else {
      report.setAside(name, "its bytes are not those that were published: it was damaged or replaced")
      return nil
    }
    return content.bytes
  }

  /// Reads a run into the view.
  func readRun(
    _ stream: StreamID, at reference: RelayRunReference, _ keys: Keys, into report: inout RelayReport
  ) async throws(ReplicationError) -> RelayView {
    let name = RelayName.run(stream, reference.numbers)
    var run: RelayRun?
    if let bytes = try await readFixed(
      name, fingerprint: reference.fingerprint, limit: Self.objectBytes, &report)
    {
      do throws(ReplicationError) {
        let payload = try keys.decrypt(bytes, as: name)
        let read = try Self.decoding(name) { () throws(DecodingFailure) in try RelayRun(bytes: payload) }
        guard read.stream == stream, read.first == reference.numbers.lowerBound,
          read.last?.number == reference.numbers.upperBound
        else {
          throw ReplicationError(.protocolViolation, "damaged run: it has other entries than its head says")
        }
        run = read
      } catch { report.setAside(name, error.message) }
    }
    return memory.withLock { [run] memory in
      let first = reference.numbers.lowerBound
      if let run {
        memory.view.streams[stream]?.runs[first] = run
      } else {
        memory.view.streams[stream]?.missingRuns.insert(first)
      }
      return memory.view
    }
  }

  /// Reads the table of a checkpoint into the view.
  func readCheckpoint(
    _ checkpoint: RelayView.CheckpointName, _ reference: RelayCheckpointReference, _ keys: Keys,
    _ report: inout RelayReport
  ) async throws(ReplicationError) -> RelayView {
    let name = RelayName.checkpoint(checkpoint.stream, checkpoint.place)
    var table: RelayCheckpoint?
    if let bytes = try await readFixed(
      name, fingerprint: reference.fingerprint, limit: Self.objectBytes, &report)
    {
      do throws(ReplicationError) {
        let payload = try keys.decrypt(bytes, as: name)
        let read = try Self.decoding(name) { () throws(DecodingFailure) in try RelayCheckpoint(table: payload)
        }
        guard read.stream == checkpoint.stream, read.state.place == checkpoint.place else {
          throw ReplicationError(.protocolViolation, "another checkpoint in its place: that of another entry")
        }
        table = read
      } catch { report.setAside(name, error.message) }
    }
    return memory.withLock { [table] memory in
      memory.view.checkpoints[checkpoint] = .some(table)
      return memory.view
    }
  }

  /// The payloads of a part's batches, decrypted; nil if the part is missing or damaged.
  func payloads(
    of part: RelayPart, _ keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> [[UInt8]]? {
    guard
      let bytes = try await readFixed(
        part.name, fingerprint: part.fingerprint, limit: RelayLimits.maximumPartBytes, &report)
    else { return nil }
    do throws(ReplicationError) {
      return try await workers.run { () throws(ReplicationError) in
        try Self.payloads(in: bytes, of: part, keys)
      }
    } catch {
      report.setAside(part.name, error.message)
      return nil
    }
  }

  private static func payloads(
    in bytes: [UInt8], of part: RelayPart, _ keys: Keys
  ) throws(ReplicationError) -> [[UInt8]] {
    let batches = try batches(in: bytes, of: part.name)
    guard batches.count == Int(part.batches) else {
      throw ReplicationError(
        .protocolViolation,
        "\(part.name): it has \(batches.count) batches, not the \(part.batches) that its entry states")
    }
    var payloads: [[UInt8]] = []
    for (index, batch) in batches.enumerated() {
      payloads.append(
        try keys.decrypt(batch, as: part.name, kind: .records, index: UInt64(index)))
    }
    return payloads
  }

  /// The encrypted batches of an object of several, each after its size.
  static func batches(in bytes: [UInt8], of object: String) throws(ReplicationError) -> [[UInt8]] {
    try decoding(object) { () throws(DecodingFailure) in
      var reader = ByteReader(bytes)
      var batches: [[UInt8]] = []
      while reader.remaining > 0 {
        let count = Int(try reader.read(UInt32.self))
        guard count <= WireLimits.encryptedBatchBytes else {
          throw DecodingFailure("a batch of \(CountText.of(count, noun: "byte"))")
        }
        batches.append(Array(try reader.read(raw: count)))
      }
      return batches
    }
  }

  /// Records that an entry cannot be read.
  func missing(_ entry: RelayEntry, in stream: StreamID) -> RelayView {
    memory.withLock { memory in
      memory.view.streams[stream]?.missingEntries.insert(entry.place.number)
      return memory.view
    }
  }

  /// Records that a checkpoint cannot be read.
  func missing(_ checkpoint: RelayCheckpoint) -> RelayView {
    let name = RelayView.CheckpointName(stream: checkpoint.stream, place: checkpoint.state.place)
    return memory.withLock { memory in
      memory.view.checkpoints[name] = .some(nil)
      return memory.view
    }
  }
}

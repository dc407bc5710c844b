package import SyncStore

/// Bounds of the objects in a relay; schemas/relay.md lists them.
package enum RelayLimits {
  /// Bytes of entries that a head holds; above that they become a run of their own.
  static let inlineBytes = 64 << 10
  /// Bytes of the records of one entry in a head; larger ones go to parts.
  static let inlineEntryBytes = 32 << 10
  /// Bytes after which a part is written, before the last batch.
  static let partBytes = 15 << 20
  /// The most bytes of a part: one more batch, encrypted.
  static let maximumPartBytes = partBytes + 4 + WireLimits.encryptedBatchBytes
  /// The most bytes of a head, a run or the table of a checkpoint, before encryption.
  static let objectBytes = 8 << 20
  /// Entries of one run.
  static let runEntries = 1 << 16
  /// Runs that a head names; beyond that the oldest are dropped: a member that has not read them needs a
  /// checkpoint.
  static let runs = 4096
  /// Checkpoints that a head names.
  static let checkpoints = 16
  /// Checkpoints that a head names as of no help.
  static let tried = 256
  /// Doomed names in a head.
  static let doomed = 4096
  /// Parts of an entry or a checkpoint.
  static let parts = 1 << 20
  /// Entries after the newest checkpoint that make another one due.
  static let checkpointEntries: UInt64 = 200
  /// Bytes of entries after the newest checkpoint below which no other one is due.
  static let checkpointBytes: UInt64 = 1 << 20
  /// Bytes of a fingerprint.
  static let fingerprintBytes = 16
  /// The largest value that is one object; larger ones are groups of chunks and a table.
  static let wholeBlobBytes: UInt64 = 4 << 20
  /// The largest value that goes through a relay: its table, held in memory, has some 40 MiB.
  static let blobBytes: UInt64 = 64 << 30
  /// The most bytes of an object with a table.
  static let tableBytes = 64 << 20
  /// The fewest chunks of a group, but for the last one.
  static let groupChunks = 4
  /// A group ends after a chunk whose first byte has none of these bits.
  static let groupMask: UInt8 = 7
  /// Bytes after which a group ends in any case.
  static let groupBytes = 2 << 20
  /// The most bytes of a group.
  static let maximumGroupBytes = groupBytes + WireLimits.chunkBytes
  /// Looks that find the bell as it was, after which the heads are listed nevertheless: a listing may have
  /// left one out.
  static let quietLooks = 100
  /// Large values that a head asks for.
  static let wanted = 1024
  /// Milliseconds for which a checkpoint is kept in any case.
  static let checkpointMilliseconds: UInt64 = 14 * 86_400_000
  /// The longest life of an invitation, and of requests and answers to it.
  static let invitationMilliseconds: UInt64 = 31 * 86_400_000
  /// Milliseconds between naming an object as doomed and deleting it.
  static let doomMilliseconds: UInt64 = 86_400_000
}

extension RelayEntry {
  private enum Flag {
    static let narrow: UInt8 = 1
    static let digest: UInt8 = 2
    static let parts: UInt8 = 4
    /// Vector, floor and dependencies are complete, not additions to those of the entry before.
    static let complete: UInt8 = 8
  }

  /// Writes the entry; relative to the one before it, if there is one. Its number follows from its place in
  /// the run.
  fileprivate func write(to writer: inout ByteWriter, after earlier: RelayEntry?) {
    let isComplete =
      earlier.map { !vector.covers($0.vector) || !floor.covers($0.floor) || !followsAll(of: $0) } ?? true
    var flags: UInt8 = isNarrow ? Flag.narrow : 0
    if digest != nil { flags |= Flag.digest }
    if case .parts = content { flags |= Flag.parts }
    if isComplete { flags |= Flag.complete }
    writer.write(flags)
    writer.write(raw: place.mark.bytes)
    writer.write(raw: actor.bytes)
    writer.writeVariable(sequence)
    writer.writeVariable(position)
    writer.write(horizon.rawValue)
    writer.write(time)
    let base = isComplete ? nil : earlier
    writer.write(vector.beyond(base?.vector ?? VersionVector()))
    writer.write(floor.beyond(base?.floor ?? VersionVector()))
    writer.write(dependencies.filter { base?.dependencies[$0.key] != $0.value })
    if let digest {
      writer.write(raw: digest.digest.bytes)
      writer.write(digest.time)
    }
    writer.writeVariable(records)
    switch content {
    case .inline(let payloads):
      writer.writeVariable(UInt64(payloads.count))
      for payload in payloads { writer.write(counted: payload) }
    case .parts(let parts): writer.write(parts)
    }
  }

  /// Whether no dependency of `other` is missing here.
  private func followsAll(of other: RelayEntry) -> Bool {
    other.dependencies.keys.allSatisfy { dependencies[$0] != nil }
  }

  fileprivate init(
    from reader: inout ByteReader, number: UInt64, after earlier: RelayEntry?
  ) throws(DecodingFailure) {
    let flags = try reader.read(UInt8.self)
    place = RelayProgress.Place(number: number, mark: try reader.readMark())
    actor = try reader.readActor()
    sequence = try reader.readVariable()
    position = try reader.readVariable()
    horizon = try reader.readStamp()
    time = try reader.read(UInt64.self)
    vector = try reader.readVector()
    floor = try reader.readVector()
    dependencies = try reader.readPlaces()
    if flags & Flag.complete == 0 {
      guard let earlier else { throw DecodingFailure("an entry that follows none") }
      vector.merge(earlier.vector)
      floor.merge(earlier.floor)
      dependencies.merge(earlier.dependencies) { new, _ in new }
    }
    if flags & Flag.digest != 0 {
      digest = StatedDigest(digest: try reader.readDigest(), time: try reader.read(UInt64.self))
    }
    isNarrow = flags & Flag.narrow != 0
    records = try reader.readVariable()
    if flags & Flag.parts != 0 {
      content = .parts(try reader.readParts())
    } else {
      var payloads: [[UInt8]] = []
      for _ in 0..<(try reader.readCount(limit: RelayLimits.inlineBytes)) {
        payloads.append(try reader.readCounted(limit: RelayLimits.objectBytes))
      }
      content = .inline(payloads)
    }
  }
}

extension RelayRun {
  private static let version: UInt8 = 1

  /// The bytes of the run, before encryption.
  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 4096)
    writer.write(Self.version)
    writer.write(raw: stream.bytes)
    writer.write(UInt8(previous == nil ? 0 : 1))
    if let previous { writer.write(previous) }
    writer.writeVariable(UInt64(entries.count))
    var earlier: RelayEntry?
    for entry in entries {
      entry.write(to: &writer, after: earlier)
      earlier = entry
    }
    return writer.bytes
  }

  /// Decodes the bytes of a run. Trailing bytes are an error.
  package init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    try reader.readVersion(Self.version, of: "a run")
    let stream: StreamID = try reader.readIdentifier()
    self.init(stream: stream, after: try reader.readFlag() ? try reader.readPlace() : nil)
    let count = try reader.readCount(limit: RelayLimits.runEntries)
    for number in first..<first + UInt64(count) {
      entries.append(try RelayEntry(from: &reader, number: number, after: entries.last))
    }
    try reader.end()
  }
}

extension RelayCheckpoint {
  private static let version: UInt8 = 1

  /// The bytes of its table, before encryption.
  package var bytesOfTable: [UInt8] {
    var writer = ByteWriter(capacity: 4096)
    writer.write(Self.version)
    writer.write(raw: stream.bytes)
    writer.writeVariable(state.place.number)
    state.write(to: &writer, after: nil)
    writer.writeVariable(UInt64(totals.count))
    for (stream, total) in totals.sorted(by: { $0.key < $1.key }) {
      writer.write(raw: stream.bytes)
      writer.writeVariable(total)
    }
    writer.writeVariable(bytes)
    if closing != state.vector { writer.write(closing) }
    return writer.bytes
  }

  /// Decodes the bytes of a table. Trailing bytes are an error.
  package init(table: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(table)
    try reader.readVersion(Self.version, of: "a checkpoint")
    stream = try reader.readIdentifier()
    let number = try reader.readVariable()
    guard number > 0 else { throw DecodingFailure("entry 0 of a stream") }
    state = try RelayEntry(from: &reader, number: number, after: nil)
    totals = [:]
    for _ in 0..<(try reader.readCount(limit: RelayProgress.maximumStreams)) {
      totals[try reader.readIdentifier()] = try reader.readVariable()
    }
    bytes = try reader.readVariable()
    closing = reader.remaining > 0 ? try reader.readVector() : state.vector
    try reader.end()
  }
}

extension RelayHead {
  private static let version: UInt8 = 1

  /// The bytes of the head without its signature, before encryption.
  package var signedBytes: [UInt8] {
    var writer = ByteWriter(capacity: 4096)
    writer.write(Self.version)
    writer.write(UInt8(needsFullState ? 1 : 0))
    if needsFullState {
      writer.writeVariable(UInt64(tried.count))
      for fingerprint in tried { writer.write(raw: fingerprint) }
    }
    writer.write(raw: publicKey)
    writer.write(raw: wrappingKey)
    writer.write(raw: actor.bytes)
    writer.write(time)
    writer.writeVariable(total)
    writer.write(seen)
    writer.writeVariable(UInt64(runs.count))
    for run in runs {
      writer.writeVariable(run.numbers.lowerBound)
      writer.writeVariable(run.numbers.upperBound - run.numbers.lowerBound)
      writer.writeVariable(run.bytes)
      writer.write(raw: run.fingerprint)
    }
    writer.writeVariable(UInt64(checkpoints.count))
    for checkpoint in checkpoints {
      writer.write(checkpoint.place)
      writer.write(checkpoint.time)
      writer.write(raw: checkpoint.fingerprint)
    }
    writer.writeVariable(UInt64(wanted.count))
    for blob in wanted {
      writer.write(raw: blob.hash.bytes)
      writer.writeVariable(blob.size)
    }
    writer.writeVariable(UInt64(doomed.count))
    for doom in doomed {
      writer.write(text: doom.name)
      writer.write(doom.time)
    }
    writer.write(counted: run.bytes)
    return writer.bytes
  }

  /// Decodes the bytes of a head without its signature. Trailing bytes are an error.
  package init(signedBytes bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    try reader.readVersion(Self.version, of: "a head")
    needsFullState = try reader.readFlag()
    if needsFullState {
      for _ in 0..<(try reader.readCount(limit: RelayLimits.tried)) {
        tried.append(try reader.readFingerprint())
      }
    }
    publicKey = Array(try reader.read(raw: DeviceIdentity.keyBytes))
    wrappingKey = Array(try reader.read(raw: WrappingKey.keyBytes))
    actor = try reader.readActor()
    time = try reader.read(UInt64.self)
    total = try reader.readVariable()
    seen = try reader.readPlaces()
    for _ in 0..<(try reader.readCount(limit: RelayLimits.runs)) {
      let (first, more) = (try reader.readVariable(), try reader.readVariable())
      guard first > 0, more < UInt64(RelayLimits.runEntries),
        first.addingReportingOverflow(more).overflow == false
      else { throw DecodingFailure("numbers of a run") }
      runs.append(
        RelayRunReference(
          numbers: first...first + more, bytes: try reader.readVariable(),
          fingerprint: try reader.readFingerprint()))
    }
    for _ in 0..<(try reader.readCount(limit: RelayLimits.checkpoints)) {
      checkpoints.append(
        RelayCheckpointReference(
          place: try reader.readPlace(), time: try reader.read(UInt64.self),
          fingerprint: try reader.readFingerprint()))
    }
    for _ in 0..<(try reader.readCount(limit: RelayLimits.wanted)) {
      guard let hash = BlobHash(bytes: try reader.read(raw: 32)) else { throw DecodingFailure("hash") }
      wanted.append(BlobReference(hash: hash, size: try reader.readVariable()))
    }
    for _ in 0..<(try reader.readCount(limit: RelayLimits.doomed)) {
      doomed.append(RelayDoom(name: try reader.readObjectName(), time: try reader.read(UInt64.self)))
    }
    run = try RelayRun(bytes: try reader.readCounted(limit: RelayLimits.objectBytes))
    try reader.end()
  }
}

extension ByteWriter {
  /// Appends the number of parts, and for each its name, size, batches and fingerprint.
  fileprivate mutating func write(_ parts: [RelayPart]) {
    writeVariable(UInt64(parts.count))
    for part in parts {
      write(text: part.name)
      writeVariable(part.bytes)
      writeVariable(UInt64(part.batches))
      write(raw: part.fingerprint)
    }
  }
}

extension ByteReader {
  fileprivate mutating func readParts() throws(DecodingFailure) -> [RelayPart] {
    var parts: [RelayPart] = []
    for _ in 0..<(try readCount(limit: RelayLimits.parts)) {
      let (name, bytes, batches) = (try readObjectName(), try readVariable(), try readVariable())
      guard bytes <= UInt64(RelayLimits.maximumPartBytes), let batches = UInt32(exactly: batches) else {
        throw DecodingFailure("size of a part")
      }
      parts.append(
        RelayPart(name: name, bytes: bytes, batches: batches, fingerprint: try readFingerprint()))
    }
    return parts
  }

  /// The version of an object, which must be the known one.
  mutating func readVersion(_ known: UInt8, of what: String) throws(DecodingFailure) {
    guard try read(UInt8.self) == known else {
      throw DecodingFailure("\(what) of a newer version: update this program")
    }
  }

  fileprivate mutating func readFingerprint() throws(DecodingFailure) -> [UInt8] {
    Array(try read(raw: RelayLimits.fingerprintBytes))
  }

  fileprivate mutating func readObjectName() throws(DecodingFailure) -> String {
    let name = try readText(limit: ObjectName.maximumBytes)
    guard ObjectName.isValid(name) else { throw DecodingFailure("name of an object") }
    return name
  }
}

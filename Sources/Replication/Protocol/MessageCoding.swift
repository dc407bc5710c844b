package import SyncStore

extension Message {
  /// The message's frame. The caller must keep counts within the bounds of `decode`: the other side refuses
  /// larger ones.
  package var frame: Frame {
    var writer = ByteWriter(capacity: 64)
    let type = write(to: &writer)
    return Frame(type: type.rawValue, payload: writer.bytes)
  }

  private func write(to writer: inout ByteWriter) -> MessageType {
    switch self {
    case .hello(let hello):
      hello.write(to: &writer)
      return .hello
    case .foreignHello(let versions):
      writer.write(versions.lowerBound)
      writer.write(versions.upperBound)
      return .hello
    case .want(let cursor):
      writer.write(cursor)
      return .want
    case .roundBegin(let begin):
      writer.write(raw: begin.mark.bytes)
      writer.write(begin.kind.rawValue)
      writer.writeVariable(begin.position)
      writer.writeVariable(begin.records)
      return .roundBegin
    case .batch(let index, let encrypted):
      writer = ByteWriter(capacity: encrypted.count + 4)
      writer.write(index)
      writer.write(raw: encrypted)
      return .batch
    case .batchReceived(let position):
      writer.writeVariable(position)
      return .batchReceived
    case .roundClose(let end):
      writer.write(raw: end.mark.bytes)
      writer.writeVariable(end.position)
      writer.write(end.batches)
      writer.write(end.vector)
      writer.write(end.floor)
      writer.write(end.horizon.rawValue)
      return .roundClose
    case .receipt(let receipt):
      writer.writeVariable(receipt.received)
      writer.writeVariable(receipt.state.position)
      writer.write(receipt.state.vector)
      writer.write(raw: receipt.state.digest.bytes)
      writer.writeVariable(receipt.state.at)
      writer.writeVariable(receipt.missingBlobs)
      return .receipt
    case .blobWant(let needs):
      writer.writeVariable(UInt64(needs.count))
      for need in needs { need.write(to: &writer) }
      return .blobWant
    case .blobRange(let range):
      writer = ByteWriter(capacity: range.encrypted.count + 48)
      writer.write(raw: range.hash.bytes)
      writer.writeVariable(range.offset)
      writer.write(UInt8(range.isLast ? 1 : 0))
      writer.write(raw: range.encrypted)
      return .blobRange
    case .blobUnavailable(let hash):
      writer.write(raw: hash.bytes)
      return .blobUnavailable
    case .ping(let number):
      writer.write(number)
      return .ping
    case .pong(let number):
      writer.write(number)
      return .pong
    case .goodbye: return .goodbye
    case .refuse(let refusal):
      writer.write(refusal.code.rawValue)
      writer.write(text: refusal.text)
      return .refuse
    case .joinRequest(let request):
      writer.write(raw: request.invitation)
      writer.write(text: request.deviceName)
      writer.write(raw: request.mac)
      return .joinRequest
    case .joinAccept(let accept):
      writer.write(raw: accept.mac)
      writer.write(raw: accept.proven)
      return .joinAccept
    case .live: return .live
    case .liveUpdate(let update):
      update.write(to: &writer)
      return .liveUpdate
    case .liveUpdateEnd(let batches):
      writer.write(batches)
      return .liveUpdateEnd
    case .liveUpdateReceived(let position, let missing):
      writer.writeVariable(position)
      writer.writeVariable(missing)
      return .liveUpdateReceived
    case .groupKeys(let text):
      writer.write(counted: text)
      return .groupKeys
    case .scopeWant(let want):
      want.write(to: &writer)
      return .scopeWant
    case .stateClaim(let claim):
      claim.write(to: &writer)
      return .stateClaim
    case .digestGroups(let groups):
      groups.write(to: &writer)
      return .digestGroups
    case .groupBuckets(let groups):
      GroupBuckets.write(groups, to: &writer)
      return .groupBuckets
    case .bucketPrints(let prints):
      prints.write(to: &writer)
      return .bucketPrints
    case .differingRecords(let records):
      records.write(to: &writer)
      return .differingRecords
    case .repaired(let keys, let isRenewed):
      writer.writeVariable(keys)
      writer.write(UInt8(isRenewed ? 1 : 0))
      return .repaired
    case .keysWant(let prints):
      prints.write(to: &writer)
      return .keysWant
    case .keyStates(let states):
      states.write(to: &writer)
      return .keyStates
    case .recipeWant(let need):
      need.write(to: &writer)
      return .recipeWant
    case .recipe(let recipe):
      writer = ByteWriter(capacity: recipe.encrypted.count + 48)
      writer.write(raw: recipe.hash.bytes)
      writer.writeVariable(recipe.offset)
      writer.write(raw: recipe.encrypted)
      return .recipe
    case .partsWant(let wanted):
      wanted.write(to: &writer)
      return .partsWant
    case .recipeUnavailable(let hash):
      writer.write(raw: hash.bytes)
      return .recipeUnavailable
    case .holdingsWant(let wanted):
      wanted.write(to: &writer)
      return .holdingsWant
    case .holdings(let stated):
      stated.write(to: &writer)
      return .holdings
    }
  }

  /// Decodes the message in a frame; nil if it is an unknown extension, to be ignored.
  ///
  /// Every count is checked against its bound and against the bytes present before anything is allocated for
  /// it (F78).
  package static func decode(_ frame: consuming Frame) throws(DecodingFailure) -> Message? {
    guard frame.type < MessageType.firstExtension else { return nil }
    guard let type = MessageType(rawValue: frame.type) else {
      throw DecodingFailure("message of unknown type \(frame.type)")
    }
    if frame.payload.count >= Frame.pieceBytes, type == .batch || type == .blobRange {
      return try readLarge(type, from: &frame.payload)
    }
    var reader = ByteReader(frame.payload)
    let message = try read(type, from: &reader)
    // Later versions may append fields to a hello; all other messages are exact.
    if type != .hello { try reader.end() }
    return message
  }

  static func read(_ type: MessageType, from reader: inout ByteReader) throws(DecodingFailure)
    -> Message
  {
    switch type {
    case .hello:
      // The versions come first in the hello of every version, so that sides with none in common can still
      // report it.
      let versions = try Hello.versions(from: &reader)
      guard versions.overlaps(WireLimits.protocolVersions) else { return .foreignHello(versions) }
      return .hello(try Hello(versions, from: &reader))
    case .want: return .want(try reader.readCursor())
    case .roundBegin: return .roundBegin(try RoundBegin(from: &reader))
    case .batch: return .batch(index: try reader.read(UInt32.self), encrypted: try reader.readRest())
    case .batchReceived: return .batchReceived(position: try reader.readVariable())
    case .roundClose: return .roundClose(try RoundEnd(from: &reader))
    case .receipt: return .receipt(try Receipt(from: &reader))
    case .blobWant: return .blobWant(try BlobNeed.list(from: &reader))
    case .blobRange: return .blobRange(try BlobRange(from: &reader))
    case .blobUnavailable: return .blobUnavailable(try reader.readBlobHash())
    case .ping: return .ping(try reader.read(UInt64.self))
    case .pong: return .pong(try reader.read(UInt64.self))
    case .goodbye: return .goodbye
    case .refuse: return .refuse(try Refusal(from: &reader))
    case .joinRequest: return .joinRequest(try JoinRequest(from: &reader))
    case .joinAccept: return .joinAccept(try JoinAccept(from: &reader))
    case .live: return .live
    case .liveUpdate: return .liveUpdate(try LiveUpdate(from: &reader))
    case .liveUpdateEnd: return .liveUpdateEnd(batches: try reader.read(UInt32.self))
    case .liveUpdateReceived:
      return .liveUpdateReceived(position: try reader.readVariable(), missingBlobs: try reader.readVariable())
    case .groupKeys:
      return .groupKeys(try reader.readCounted(limit: GroupKeyRing.maximumTextBytes))
    case .stateClaim: return .stateClaim(try StateClaim(from: &reader))
    case .digestGroups: return .digestGroups(try DigestGroups(from: &reader))
    case .groupBuckets: return .groupBuckets(try GroupBuckets.list(from: &reader))
    case .bucketPrints: return .bucketPrints(try BucketPrints(from: &reader))
    case .differingRecords: return .differingRecords(try DifferingRecords(from: &reader))
    case .repaired: return .repaired(keys: try reader.readVariable(), isRenewed: try reader.readFlag())
    case .scopeWant: return .scopeWant(try ScopeWant(from: &reader))
    case .keysWant: return .keysWant(try BucketPrints(from: &reader))
    case .keyStates: return .keyStates(try KeyStates(from: &reader))
    case .recipeWant: return .recipeWant(try BlobNeed(from: &reader))
    case .recipe:
      return .recipe(
        EncryptedRecipe(
          hash: try reader.readBlobHash(), offset: try reader.readVariable(), encrypted: try reader.readRest()
        ))
    case .partsWant: return .partsWant(try BlobPartsWanted(from: &reader))
    case .recipeUnavailable: return .recipeUnavailable(try reader.readBlobHash())
    case .holdingsWant: return .holdingsWant(try HoldingsWanted(from: &reader))
    case .holdings: return .holdings(try HoldingsStated(from: &reader))
    }
  }
}

extension Hello {
  fileprivate func write(to writer: inout ByteWriter) {
    writer.write(versions.lowerBound)
    writer.write(versions.upperBound)
    writer.write(incompatibleFeatures)
    writer.write(compatibleFeatures)
    writer.write(raw: summary.store.bytes)
    writer.write(raw: summary.actor.bytes)
    writer.writeVariable(wallMilliseconds)
    writer.writeVariable(summary.sequence)
    writer.write(summary.vector)
    writer.write(summary.floor)
    writer.write(summary.horizon.rawValue)
    writer.writeVariable(summary.position)
    writer.write(summary.health.rawValue)
    writer.write(raw: digest.bytes)
    writer.write(directions.rawValue)
    writer.write(cursor)
    if compatibleFeatures & SessionFeature.groupKeys != 0 { EpochCheck.write(epochs, to: &writer) }
    summary.scope?.write(to: &writer)
  }

  fileprivate static func versions(from reader: inout ByteReader) throws(DecodingFailure) -> ClosedRange<
    UInt16
  > {
    let (oldest, newest) = (try reader.read(UInt16.self), try reader.read(UInt16.self))
    guard oldest > 0, oldest <= newest else {
      throw DecodingFailure("protocol versions \(oldest) to \(newest)")
    }
    return oldest...newest
  }

  fileprivate init(_ versions: ClosedRange<UInt16>, from reader: inout ByteReader) throws(DecodingFailure) {
    self.versions = versions
    incompatibleFeatures = try reader.read(UInt64.self)
    compatibleFeatures = try reader.read(UInt64.self)
    let store = try reader.readStoreID()
    let actor = try reader.readActor()
    wallMilliseconds = try reader.readVariable()
    summary = ReplicaSummary(
      store: store, actor: actor, sequence: try reader.readVariable(), vector: try reader.readVector(),
      floor: try reader.readVector(), horizon: try reader.readStamp(), position: try reader.readVariable())
    summary.health = try reader.readHealth()
    guard wallMilliseconds < 1 << 48 else { throw DecodingFailure("wall clock beyond any stamp") }
    digest = try reader.readDigest()
    let directions = try reader.read(UInt8.self)
    guard directions <= 3 else { throw DecodingFailure("directions \(directions)") }
    self.directions = Directions(rawValue: directions)
    cursor = try reader.readCursor()
    epochs =
      compatibleFeatures & SessionFeature.groupKeys != 0 ? try EpochCheck.list(from: &reader) : []
    if incompatibleFeatures & NeededFeature.scope != 0 { summary.scope = try KeyScope(from: &reader) }
  }
}

extension RoundBegin {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    mark = try reader.readMark()
    let number = try reader.read(UInt8.self)
    guard let kind = Kind(rawValue: number) else { throw DecodingFailure("round of kind \(number)") }
    self.kind = kind
    position = try reader.readVariable()
    records = try reader.readVariable()
  }
}

extension RoundEnd {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    mark = try reader.readMark()
    position = try reader.readVariable()
    batches = try reader.read(UInt32.self)
    vector = try reader.readVector()
    floor = try reader.readVector()
    horizon = try reader.readStamp()
  }
}

extension Receipt {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    received = try reader.readVariable()
    state = DigestedState(
      position: try reader.readVariable(), vector: try reader.readVector(), digest: try reader.readDigest(),
      at: try reader.readVariable())
    missingBlobs = try reader.readVariable()
  }
}

extension BlobNeed {
  fileprivate func write(to writer: inout ByteWriter) {
    writer.write(raw: hash.bytes)
    writer.writeVariable(size)
    writer.writeVariable(offset)
  }

  fileprivate static func list(from reader: inout ByteReader) throws(DecodingFailure) -> [BlobNeed] {
    let count = try reader.readCount(limit: Limits.blobsInFlight)
    var needs: [BlobNeed] = []
    for _ in 0..<count { needs.append(try BlobNeed(from: &reader)) }
    return needs
  }

  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    self.init(
      hash: try reader.readBlobHash(), size: try reader.readVariable(), offset: try reader.readVariable())
    guard size <= Limits.blobBytes, offset <= size else {
      throw DecodingFailure("blob of \(CountText.of(size, noun: "byte")) wanted from \(offset)")
    }
  }
}

extension BlobRange {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    hash = try reader.readBlobHash()
    offset = try reader.readVariable()
    guard offset <= Limits.blobBytes else { throw DecodingFailure("blob range from \(offset)") }
    isLast = try reader.readFlag()
    encrypted = try reader.readRest()
  }
}

extension Refusal {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    code = Code(rawValue: try reader.read(UInt8.self)) ?? .unavailable
    text = try reader.readText(limit: WireLimits.refusalBytes)
  }
}

extension JoinRequest {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    invitation = Array(try reader.read(raw: 8))
    deviceName = try reader.readName()
    mac = Array(try reader.read(raw: 32))
  }
}

extension JoinAccept {
  /// All fields except the proof, as encoded on the wire and covered by the proof.
  package var proven: [UInt8] {
    var writer = ByteWriter(capacity: 128 + groupKeys.count)
    writer.write(raw: store.bytes)
    writer.write(text: storeName)
    writer.write(text: inviterName)
    writer.write(text: memberName)
    writer.write(right.rawValue)
    writer.write(counted: groupKeys)
    return writer.bytes
  }

  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    mac = Array(try reader.read(raw: 32))
    store = try reader.readStoreID()
    storeName = try reader.readName()
    inviterName = try reader.readName()
    memberName = try reader.readName()
    right = try reader.readRight()
    groupKeys = try reader.readCounted(limit: GroupKeyRing.maximumTextBytes)
  }
}

internal import SyncStore

/// A relay as this copy knows it: its name here, and how to reach it. Contains no secret.
///
/// ```swift
/// let stick = try RelayDescription(name: "stick", location: "dir:/media/stick/notes")
/// try Membership(store).add(stick)
/// ```
public struct RelayDescription: Hashable, Sendable {
  /// The most bytes of the location, and of each further field.
  public static let maximumBytes = 1024

  /// Its name on this copy.
  public let name: String
  /// `dir:` and an absolute path, or `s3://bucket/prefix`.
  public let location: String
  /// For a bucket: the URL of its server; nil for AWS.
  public var endpoint: String?
  /// For a bucket: the region; nil for the server's default.
  public var region: String?
  /// For a bucket: the file with its credentials; nil for the environment and the usual files.
  public var credentialsFile: String?
  /// For a bucket: the file with the certificates that its server is checked with; nil for the system's.
  public var certificatesFile: String?
  /// For a bucket: its prices; nil if they are not known.
  public var prices: RelayPrices?

  private init(checkedName name: String, location: String) { (self.name, self.location) = (name, location) }
}

extension RelayDescription {
  /// A relay with this name at this location.
  ///
  /// - Throws: `.network` if the name or the location is not valid.
  public init(name: String, location: String) throws(ReplicationError) {
    guard StoreIdentity.isName(name) else {
      throw ReplicationError(
        .network,
        "cannot add \"\(name.printable)\": it is no name: use 1 to \(Limits.nameBytes) bytes without blanks or slashes"
      )
    }
    guard Self.isLocation(location) else {
      throw ReplicationError(
        .network,
        "cannot add \(name): \"\(location.printable)\" is no location of a relay: write dir:/absolute/path or s3://bucket/prefix"
      )
    }
    self.init(checkedName: name, location: location)
  }

  /// Whether a text has the form of a location of a relay, valid or not: it begins with `dir:` or `s3:`.
  public static func isMeant(by text: String) -> Bool { text.hasPrefix("dir:") || text.hasPrefix("s3:") }

  private static func isLocation(_ text: String) -> Bool {
    guard text.utf8.count <= maximumBytes, !text.utf8.contains(0) else { return false }
    if let path = directory(of: text) { return path.hasPrefix("/") }
    return text.hasPrefix("s3://") && text.utf8.count > 5 && !text.hasPrefix("s3:///")
  }

  private static func directory(of location: String) -> Substring? {
    location.hasPrefix("dir:") ? location.dropFirst(4) : nil
  }

  /// The directory that it is in; nil for a bucket.
  public var directory: String? { Self.directory(of: location).map { String($0) } }

  // MARK: Bytes

  private static let version: UInt8 = 1

  /// The value of its local record (`schemas/members.md`).
  var bytes: [UInt8] {
    var writer = ByteWriter()
    writer.write(Self.version)
    writer.write(text: location)
    for field in [endpoint, region, credentialsFile, certificatesFile, prices?.description] {
      writer.write(text: field ?? "")
    }
    return writer.bytes
  }

  /// Decodes the value of a local record. Bytes after the known fields belong to a newer version and are
  /// skipped.
  init(name: String, bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    try reader.readVersion(Self.version, of: "the record of a relay")
    self.init(checkedName: name, location: try reader.readText(limit: Self.maximumBytes))
    var fields: [String?] = []
    for index in 0..<5 {
      // The prices were added later.
      let field = index == 4 && reader.remaining == 0 ? "" : try reader.readText(limit: Self.maximumBytes)
      fields.append(field.isEmpty ? nil : field)
    }
    (endpoint, region, credentialsFile, certificatesFile) = (fields[0], fields[1], fields[2], fields[3])
    prices = fields[4].flatMap { RelayPrices($0) }
  }
}

extension Membership {
  private static let relayPrefix = Array("relay/".utf8)

  private static func relayKey(_ name: String) -> [UInt8] { relayPrefix + Array(name.utf8) }

  /// The relays of this copy, by name.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func relays() throws(ReplicationError) -> [RelayDescription] {
    let records = try mappingStoreErrors { () throws(StoreError) in
      try store.locals(prefix: Self.relayPrefix)
    }
    return records.compactMap { record in
      let name = String(decoding: record.key.dropFirst(Self.relayPrefix.count), as: UTF8.self)
      return try? RelayDescription(name: name, bytes: record.value)
    }
  }

  /// The relay with this name on this copy; nil if there is none.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func relay(named name: String) throws(ReplicationError) -> RelayDescription? {
    let value = try mappingStoreErrors { () throws(StoreError) in try store.local(Self.relayKey(name)) }
    return value.flatMap { try? RelayDescription(name: name, bytes: $0) }
  }

  /// Names a relay, durably, replacing one of the same name. Nothing is read or written there yet.
  ///
  /// - Throws: `.notAllowed` if a member or a peer has that name; `.store` if it cannot be written.
  public func add(_ relay: RelayDescription) throws(ReplicationError) {
    let isPeer = try peer(named: relay.name) != nil
    let isMember = try member(named: relay.name) != nil
    guard !isPeer, !isMember else {
      throw ReplicationError(
        .notAllowed,
        "cannot add relay \(relay.name): a \(isPeer ? "peer" : "member") is called so: choose another name")
    }
    try mappingStoreErrors { () throws(StoreError) in
      try store.setLocal(Self.relayKey(relay.name), relay.bytes)
    }
  }

  /// Forgets a relay's name, location and history. The contents of the relay stay, and this copy's knowledge
  /// of them as well.
  ///
  /// - Returns: false if there was none.
  /// - Throws: `.store` if it cannot be written.
  public func remove(relay name: String) throws(ReplicationError) -> Bool {
    try mappingStoreErrors { () throws(StoreError) in
      guard try store.local(Self.relayKey(name)) != nil else { return false }
      try store.setLocals([(Self.relayKey(name), nil), (RelayHistories.key(name), nil)])
      return true
    }
  }
}

public import SyncStore

/// Facts that a session has learned of the copy at the other end.
public struct Contact: Hashable, Sendable {
  /// When its hello arrived, by this copy's clock, in milliseconds since 1970.
  public var time: UInt64
  /// Milliseconds by which its clock was ahead of this copy's.
  public var clockOffset: Int64
  /// Its incarnation.
  public var actor: ActorID
  /// The position of this copy's journal up to which it holds everything durably; 0 if unknown.
  public var received: UInt64
}

/// The contacts of the copies that had sessions with this one, kept by this copy only (`schemas/members.md`).
/// All calls block.
package struct Contacts: Sendable {
  private static let prefix = Array("contact/".utf8)
  private static let version: UInt8 = 1
  /// An almost unchanged contact is not rewritten for this many milliseconds: each write costs a sync.
  private static let keptMilliseconds: UInt64 = 3_600_000
  private static let offsetThreshold: Int64 = 250

  private let store: Store

  /// The contacts of a store.
  package init(_ store: Store) { self.store = store }

  private static func key(_ device: DeviceID) -> [UInt8] { prefix + device.bytes }

  /// Stores the contacts that changed, in one append.
  package func record(_ learned: [(device: DeviceID, contact: Contact)]) throws(ReplicationError) {
    var changes: [(key: [UInt8], value: [UInt8]?)] = []
    for (device, contact) in learned {
      if let known = try self.contact(device), known.actor == contact.actor,
        abs(known.clockOffset - contact.clockOffset) < Self.offsetThreshold,
        known.received >= contact.received,
        contact.time < known.time + Self.keptMilliseconds
      {
        continue
      }
      var writer = ByteWriter(capacity: 64)
      writer.write(Self.version)
      writer.write(contact.time)
      writer.write(UInt64(bitPattern: contact.clockOffset))
      writer.write(raw: contact.actor.bytes)
      writer.write(contact.received)
      changes.append((Self.key(device), writer.bytes))
    }
    guard !changes.isEmpty else { return }
    let noted = changes
    try mappingStoreErrors { () throws(StoreError) in try store.setLocals(noted) }
  }

  /// The contact of a device's copy; nil if there was no session with it.
  package func contact(_ device: DeviceID) throws(ReplicationError) -> Contact? {
    try mappingStoreErrors { () throws(StoreError) in try store.local(Self.key(device)) }.flatMap(Self.read)
  }

  private static func read(_ bytes: [UInt8]) -> Contact? {
    var reader = ByteReader(bytes)
    guard let version = try? reader.read(UInt8.self), version >= Self.version,
      let time = try? reader.read(UInt64.self), let offset = try? reader.read(UInt64.self),
      let actor = try? reader.readActor(), let received = try? reader.read(UInt64.self)
    else { return nil }
    return Contact(
      time: time, clockOffset: Int64(bitPattern: offset), actor: actor, received: received)
  }
}

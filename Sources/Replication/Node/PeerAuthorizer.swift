internal import SyncStore

/// The peer that a node dials.
struct DialTarget: Sendable {
  /// The key that the peer must present; nil if any member's will do.
  var device: DeviceID?
  /// The peer's name on this copy, if it is not known as a member yet, but pinned by the invitation.
  var name: String
}

/// Decides within one TLS handshake whether the other side is admitted, and remembers as which member. Reads
/// the store each time: other processes and other copies may add members and invitations. Blocks and runs on
/// workers.
final class PeerAuthorizer: Sendable {
  private let store: Store
  private let target: DialTarget?
  private let authorizedMember = LockedField<Member?>(nil)
  private let revokedName = LockedField<String?>(nil)
  private let isUnknownDevice = LockedField(false)
  private let lookupFailure = LockedField<ReplicationError?>(nil)

  /// The authorizer of an accepted connection (no target) or a dialled one.
  init(store: Store, target: DialTarget? = nil) { (self.store, self.target) = (store, target) }

  /// The member that was admitted; nil if none was.
  var member: Member? { authorizedMember.withLock { $0 } }

  /// The name of a revoked member that connected: it is admitted only to be told so (`NodeCore`).
  var revokedMember: String? { revokedName.withLock { $0 } }

  /// Whether the device was rejected because nothing is known of it here.
  var rejectedUnknownDevice: Bool { isUnknownDevice.withLock { $0 } }

  /// The error of looking up the other side in the store; nil if it succeeded.
  var failure: ReplicationError? { lookupFailure.withLock { $0 } }

  /// Whether this device may use this application protocol.
  func authorizes(_ device: DeviceID, applicationProtocol: String) -> Bool {
    let joins = applicationProtocol == WireLimits.joinProtocol
    if joins, target != nil { return false }
    if let expected = target?.device, expected != device { return false }
    do throws(ReplicationError) {
      if target == nil { try checkNoRevocationLost() }
      if joins { return try InvitationStore(store: store).isAnyOpen(to: device) }
      guard let member = try Membership(store).authorizedMember(device) else {
        isUnknownDevice.withLock { $0 = true }
        return false
      }
      guard member.right != .revoked else {
        revokedName.withLock { $0 = member.name }
        return target == nil
      }
      authorizedMember.withLock { $0 = member }
      return true
    } catch {
      lookupFailure.withLock { $0 = error }
      // The device may be a member: it is admitted only to be told of the failure (`NodeCore`). A failed
      // handshake would tell it that it is no member.
      return target == nil && !joins
    }
  }

  /// Fails if damage may have taken the record that revoked a connecting device. A dialled peer was named by
  /// the user of this copy, and may send what was lost.
  private func checkNoRevocationLost() throws(ReplicationError) {
    guard let damage = try mappingStoreErrors({ () throws(StoreError) in try store.reservedKeyDamage }) else {
      return
    }
    throw ReplicationError(damage)
  }
}

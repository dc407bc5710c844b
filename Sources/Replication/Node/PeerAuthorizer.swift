internal import SyncStore

/// Who a node wants to reach.
struct DialTarget: Sendable {
  /// The key that must be shown; nil if any member's will do.
  var device: DeviceID?
  /// What the peer is called here if it is no member that is known yet, but pinned by the invitation.
  var name: String
}

/// Decides within one TLS handshake whether the other side is let in, and remembers as whom. It asks the store anew each
/// time: members and invitations may be added by other processes and other copies. It blocks and runs on workers.
final class PeerAuthorizer: Sendable {
  private let store: Store
  private let target: DialTarget?
  private let authorizedMember = LockedField<Member?>(nil)
  private let revokedName = LockedField<String?>(nil)
  private let isUnknownDevice = LockedField(false)
  private let lookupFailure = LockedField<ReplicationError?>(nil)

  /// The gate of a connection that was accepted (no target) or dialled.
  init(store: Store, target: DialTarget? = nil) { (self.store, self.target) = (store, target) }

  /// The member that was let in; nil if none was.
  var member: Member? { authorizedMember.withLock { $0 } }

  /// The name of the member that came and was revoked: it is let in only to be told so (`NodeCore`).
  var revokedMember: String? { revokedName.withLock { $0 } }

  /// Was it turned away because nothing is known of it here?
  var rejectedUnknownDevice: Bool { isUnknownDevice.withLock { $0 } }

  /// Why the store could not say who the other side is; nil if it could.
  var failure: ReplicationError? { lookupFailure.withLock { $0 } }

  /// May this device speak this application protocol?
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
      // It is not known that it is none: who came hears so, and nothing else (`NodeCore`). A handshake that fails would tell it that it
      // is no member.
      return target == nil && !joins
    }
  }

  /// Fails if damage may have taken the record by which a device that comes here was revoked. A peer that
  /// this copy dials was named by its user, and may send what was lost.
  private func checkNoRevocationLost() throws(ReplicationError) {
    guard let doubt = try mappingStoreErrors({ () throws(StoreError) in try store.reservedKeyDamage }) else {
      return
    }
    throw ReplicationError(doubt)
  }
}

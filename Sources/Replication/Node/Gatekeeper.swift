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
final class Gatekeeper: Sendable {
  private let store: Store
  private let target: DialTarget?
  private let found = LockedField<Member?>(nil)
  private let trouble = LockedField<ReplicationError?>(nil)

  /// The gate of a connection that was accepted (no target) or dialled.
  init(store: Store, target: DialTarget? = nil) { (self.store, self.target) = (store, target) }

  /// The member that was let in; nil if none was.
  var member: Member? { found.withLock { $0 } }

  /// Why the store could not say who the other side is; nil if it could.
  var failure: ReplicationError? { trouble.withLock { $0 } }

  /// May this device speak this application protocol?
  func admits(_ device: DeviceID, _ applicationProtocol: String) -> Bool {
    if applicationProtocol == WireLimits.joinProtocol {
      return target == nil && ((try? InvitationBook(store: store).isAnyOpen()) ?? false)
    }
    if let expected = target?.device, expected != device { return false }
    do throws(ReplicationError) {
      guard let member = try member(device), member.right != .revoked else { return false }
      found.withLock { $0 = member }
      return true
    } catch {
      trouble.withLock { $0 = error }
      // It is not known that it is none: who came hears so, and nothing else (`NodeCore`). A handshake that fails would tell it that it
      // is no member.
      return target == nil
    }
  }

  private func member(_ device: DeviceID) throws(ReplicationError) -> Member? {
    let membership = Membership(store)
    if let member = try membership.member(device) { return member }
    // Who has just joined knows its inviter by the invitation alone.
    guard let peer = try membership.peers().first(where: { $0.device == device }) else { return nil }
    return Member(device: device, name: peer.name, right: .readWrite, addresses: [], joined: 0)
  }
}

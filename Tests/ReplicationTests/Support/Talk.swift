@testable import Replication

/// A session under test, and what it asks for.
final class Talk {
  private(set) var session: Session

  init(_ role: Session.Role, _ right: MemberRight = .readWrite, mode: SessionMode = .once) {
    session = Session(role: role, peerName: "peer", peerRight: right, mode: mode)
    _ = session.start()
  }

  func handle(_ event: SessionEvent) -> [SessionAction] { session.handle(event) }

  /// Delivers a message from the other side.
  func say(_ message: Message) -> [SessionAction] { handle(.received(message.frame.bytes)) }

  func drainNotifications() -> [SessionNotification] { session.drainNotifications() }
}

import Replication
import SyncStore
import SyncTestSupport
import Testing

/// A session for use in expectations.
final class SessionProbe {
  private var session: Session
  private var queued = 0

  init(role: Session.Role, peerName: String, peerRight: MemberRight) {
    session = Session(role: role, peerName: peerName, peerRight: peerRight)
  }

  var figures: SessionFigures { session.figures }
  func start() -> [SessionAction] { session.start() }

  func handle(_ event: SessionEvent) -> [SessionAction] {
    let actions = session.handle(event)
    for case .send(let bytes) in actions { queued += bytes.count }
    return actions
  }

  /// The transport sends everything queued.
  func drain() {
    _ = session.handle(.sent(queued))
    queued = 0
  }
}

extension SessionEvent {
  /// Delivers the bytes of a message.
  static func message(_ message: Message) -> SessionEvent { .received(message.frame.bytes) }
}

extension SessionAction {
  /// Send a message.
  static func message(_ message: Message) -> SessionAction { .send(message.frame.bytes) }

  /// The queued message.
  var message: Message? {
    guard case .send(let bytes) = self else { return nil }
    return try? Message.decode(Frame(type: bytes[4], payload: Array(bytes.dropFirst(Frame.headerBytes))))
  }

  /// The session's error code.
  var failure: ReplicationError.Code? {
    if case .close(.failed(let code, _)) = self { code } else { nil }
  }
}

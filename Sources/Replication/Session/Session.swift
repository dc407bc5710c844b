/// One connection between two copies, as a value: events in, actions out. It knows no socket, clock or thread.
package struct Session: ~Copyable {
  /// Which side of the connection this is.
  package enum Role: Hashable, Sendable {
    /// The side that dialled, and what it wants.
    case client(SessionDirection)
    /// The side that was dialled.
    case server
  }

  /// What was moved so far.
  package private(set) var figures = SessionFigures()
  /// The other side's hello, once it has come.
  package private(set) var peer: Hello?

  /// A session that has not begun, with a peer whose identity TLS has proven: its name and right as the own store's
  /// member record has them.
  package init(role: Role, peerName: String, peerRight: MemberRight) {}

  /// Begins. Call it once, when the TLS handshake is done.
  package mutating func start() -> [SessionAction] { [] }

  /// Takes one event. After `close` was returned every event is ignored.
  package mutating func handle(_ event: SessionEvent) -> [SessionAction] { [] }
}

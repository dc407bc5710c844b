public import SyncStore

/// The direction in which a one-shot session moves records.
public enum SyncDirection: String, Sendable, CaseIterable {
  /// To the peer.
  case push
  /// From the peer.
  case pull
  /// Both directions at once.
  case both

  var inSession: SessionDirection {
    switch self {
    case .push: .push
    case .pull: .pull
    case .both: .sync
    }
  }
}

/// Progress of a session.
public struct SessionProgress: Hashable, Sendable {
  /// Records sent, and the number to send as far as known.
  public internal(set) var sentRecords = 0, recordsToSend = 0
  /// Records received, and the number to receive as far as known.
  public internal(set) var receivedRecords = 0, recordsToReceive = 0
  /// Blobs sent completely, and blobs received, verified and stored.
  public internal(set) var sentBlobs = 0, receivedBlobs = 0
  /// Bytes of messages, records and blobs together.
  public internal(set) var sentBytes = 0, receivedBytes = 0

  /// No progress yet.
  init() {}

  init(_ figures: SessionFigures) {
    (sentRecords, receivedRecords) = (figures.sentRecords, figures.receivedRecords)
    recordsToSend = Int(clamping: figures.announced.sent)
    recordsToReceive = Int(clamping: figures.announced.received)
    (sentBlobs, receivedBlobs) = (figures.sentBlobs, figures.receivedBlobs)
    (sentBytes, receivedBytes) = (figures.sentBytes, figures.receivedBytes)
  }
}

/// The result of a one-shot session. It exists only if everything requested is durable at its destination.
public struct SessionReport: Hashable, Sendable {
  /// The peer's name among the members.
  public internal(set) var peer: String
  /// Records that were moved: puts and deletes of users, not the store's own records about members.
  public internal(set) var sentRecords: Int, receivedRecords: Int
  /// Blobs that were moved.
  public internal(set) var sentBlobs: Int, receivedBlobs: Int
  /// Bytes on the wire, TLS included.
  public internal(set) var sentBytes: UInt64, receivedBytes: UInt64
  /// How often this side waited for an answer, not counting the TLS handshake.
  public internal(set) var roundTrips: Int
  /// Time from the first attempt to the end.
  public internal(set) var seconds: Double
  /// If this copy sent: the position of its journal up to which the peer holds everything durably. Otherwise
  /// the position of this copy's journal at the end.
  public internal(set) var position: UInt64
  /// If this copy sent: the digest of the peer's live records, as stated in its receipt. Otherwise this
  /// copy's own.
  public internal(set) var digest: StateDigest
  /// Whether the peer leaves out large values it receives. Then all records are durable there, and the sender
  /// does not count the peer as a holder of their large values.
  public internal(set) var leavesBlobsOut = false
  /// Keys whose contents differed although both copies covered the same writes: a machine was cloned or
  /// restored, which no check could detect. Both values are kept, the losers as conflicts; the winners were
  /// written again.
  public internal(set) var repairedKeys = 0
  /// The first 1000 of those keys.
  public internal(set) var repaired: [Key] = []
  /// If the peer is a relay: what was done there. Everything that was sent is durable in the relay; the
  /// members have yet to read it. `roundTrips` counts requests then, and the digest is this copy's own.
  public internal(set) var relay: RelayReport?
}

public import SyncStore

/// Which way a one-shot session moves records.
public enum SyncDirection: String, Sendable, CaseIterable {
  /// To the peer.
  case push
  /// From the peer.
  case pull
  /// Both at once.
  case both

  var inSession: SessionDirection {
    switch self {
    case .push: .push
    case .pull: .pull
    case .both: .sync
    }
  }
}

/// How far a session has come.
public struct SessionProgress: Hashable, Sendable {
  /// Records that were sent, and how many there are to send as far as it is known.
  public internal(set) var sentRecords = 0, recordsToSend = 0
  /// Records that came, and how many will as far as it is known.
  public internal(set) var receivedRecords = 0, recordsToReceive = 0
  /// Blobs sent to their end, and blobs received, verified and stored.
  public internal(set) var sentBlobs = 0, receivedBlobs = 0
  /// Bytes of messages, both of records and blobs.
  public internal(set) var sentBytes = 0, receivedBytes = 0

  /// Nothing was moved.
  init() {}

  init(_ figures: SessionFigures) {
    (sentRecords, receivedRecords) = (figures.sentRecords, figures.receivedRecords)
    recordsToSend = Int(clamping: figures.announcedSentRecords)
    recordsToReceive = Int(clamping: figures.announcedReceivedRecords)
    (sentBlobs, receivedBlobs) = (figures.sentBlobs, figures.receivedBlobs)
    (sentBytes, receivedBytes) = (figures.sentBytes, figures.receivedBytes)
  }
}

/// What a one-shot session has done. There is one only when all that was wanted is durable where it belongs.
public struct SessionReport: Hashable, Sendable {
  /// The peer's name among the members.
  public internal(set) var peer: String
  /// Records that were moved: keys and deletes of users, not what the store says of its members.
  public internal(set) var sentRecords: Int, receivedRecords: Int
  /// Blobs that were moved.
  public internal(set) var sentBlobs: Int, receivedBlobs: Int
  /// Bytes on the wire, TLS included.
  public internal(set) var sentBytes: UInt64, receivedBytes: UInt64
  /// How often this side had to wait for an answer to go on, the handshake of TLS not counted.
  public internal(set) var roundTrips: Int
  /// From the first attempt to the end.
  public internal(set) var seconds: Double
  /// When this copy sent: the position of its journal up to which the peer holds everything, durably. Otherwise the
  /// position of this copy's journal at the end.
  public internal(set) var position: UInt64
  /// When this copy sent: the digest of the peer's live records, as its receipt states it. Otherwise this copy's own.
  public internal(set) var digest: StateDigest
  /// Does the peer leave large values out of what it takes? Then all records are durable there, and who sent them does not take it
  /// for one that holds their large values.
  public internal(set) var leavesBlobsOut = false
  /// Keys of which the two copies had different contents though they covered the same writes: a machine was cloned or put back, and
  /// no check could see it. Both values are kept, the beaten ones as conflicts; the greater ones were issued again.
  public internal(set) var repairedKeys = 0
  /// The first 1000 of those keys.
  public internal(set) var repaired: [Key] = []
}

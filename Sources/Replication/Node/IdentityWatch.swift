internal import SyncStore

/// Notices that two running copies bear one identity: their connections displace each other. A value, without a clock.
///
/// One device that comes from another address is a laptop that moved, or a connection that died; several times within minutes it
/// is a directory that was copied, key and all.
struct IdentityWatch {
  /// Where a connection came from.
  struct Origin: Hashable {
    var host: String
    /// The copy's incarnation, once it has said so.
    var actor: ActorID?

    /// Is it certainly another one?
    func differs(from other: Origin) -> Bool {
      guard host == other.host else { return true }
      guard let actor, let theirs = other.actor else { return false }
      return actor != theirs
    }
  }

  private struct Book {
    var times: [UInt64] = []
    var hosts: StringSet = []
    var isReported = false
  }

  /// So many displacements make a conflict, if they come within `windowMilliseconds`.
  static let displacements = 3
  static let windowMilliseconds: UInt64 = 600_000
  /// Upper bound on the devices whose displacements are counted.
  private static let devices = 1024
  /// The words by which the copy whose connection was displaced is told so.
  static let displaced = "another connection of this device"

  private var books: [DeviceID: Book] = [:]

  /// Has a conflict of the device been reported, and has it not been quiet since?
  func isConflict(_ device: DeviceID) -> Bool { books[device]?.isReported ?? false }

  /// A connection of the device has displaced another one, or was turned away for it. Returns the hosts that are at it, the first time
  /// that it is certain; nil otherwise.
  mutating func displaced(
    _ device: DeviceID, by new: Origin, from old: Origin, at now: UInt64
  ) -> [String]? {
    guard new.differs(from: old) else { return nil }
    if books[device] == nil, books.count >= Self.devices { books = [:] }
    var book = books[device] ?? Book()
    book.times.removeAll { $0 + Self.windowMilliseconds < now }
    if book.times.isEmpty { book = Book() }
    book.times = (book.times + [now]).suffix(Self.displacements)
    for host in [new.host, old.host] { book.hosts.insert(host) }
    defer { books[device] = book }
    guard book.times.count >= Self.displacements, !book.isReported else { return nil }
    book.isReported = true
    return book.hosts.sorted()
  }

  /// What people are told of it.
  static func text(_ name: String, _ hosts: [String]) -> String {
    "two running copies bear the identity of \(name) (\(hosts.joined(separator: ", "))), and displace each other: stop one of "
      + "them; if both are to stay, destroy the store of that one and let it join anew with an invitation"
  }
}

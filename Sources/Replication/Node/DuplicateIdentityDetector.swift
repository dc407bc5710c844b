internal import SyncStore

/// Notices that two running copies bear one identity: their connections displace each other. A value, without a clock.
///
/// One device that comes from another address is a laptop that moved, or a connection that died; several times within minutes it
/// is a directory that was copied, key and all.
struct DuplicateIdentityDetector {
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

  private struct DisplacementHistory {
    var times: [UInt64] = []
    var hosts: StringSet = []
    var isReported = false
    /// The incarnations that were told of it.
    var notifiedActors: Set<ActorID> = []
  }

  /// So many displacements make a conflict, if they come within `windowMilliseconds`.
  static let conflictThreshold = 3
  static let windowMilliseconds: UInt64 = 600_000
  /// Upper bound on the devices whose displacements are counted.
  private static let devices = 1024
  /// The words by which the copy whose connection was displaced is told so.
  static let displacedText = "another connection of this device"

  /// Those by which a member says that it has counted enough of it.
  static let conflictText = "two running copies bear the identity of"

  private var histories: [DeviceID: DisplacementHistory] = [:]

  /// Has a conflict of the device been reported, and has it not been quiet since?
  func isConflict(_ device: DeviceID) -> Bool { histories[device]?.isReported ?? false }

  /// A connection of the device has displaced another one, or was turned away for it. Returns the hosts that are at it, the first time
  /// that it is certain; nil otherwise.
  mutating func displaced(
    _ device: DeviceID, by new: Origin, from old: Origin, at now: UInt64
  ) -> [String]? {
    new.differs(from: old) ? count(1, of: device, hosts: [new.host, old.host], at: now) : nil
  }

  /// A member has told this copy, whose device it is, that another connection took the place of its own, and `why`. True the first time
  /// that the conflict is certain: at once where the member is certain, which has counted the displacements.
  mutating func reportedDisplaced(_ device: DeviceID, reason why: String, at now: UInt64) -> Bool {
    count(why.contains(Self.conflictText) ? Self.conflictThreshold : 1, of: device, hosts: [], at: now) != nil
  }

  /// Counts so many displacements of the device. Returns what `displaced` does.
  private mutating func count(
    _ number: Int, of device: DeviceID, hosts: [String], at now: UInt64
  ) -> [String]? {
    if histories[device] == nil, histories.count >= Self.devices { histories = [:] }
    var book = histories[device] ?? DisplacementHistory()
    book.times.removeAll { $0 + Self.windowMilliseconds < now }
    if book.times.isEmpty { book = DisplacementHistory() }
    book.times = (book.times + Array(repeating: now, count: number)).suffix(Self.conflictThreshold)
    for host in hosts { book.hosts.insert(host) }
    defer { histories[device] = book }
    guard book.times.count >= Self.conflictThreshold, !book.isReported else { return nil }
    book.isReported = true
    return book.hosts.sorted()
  }

  /// Is there a conflict of the device that this incarnation of it was not told of? It counts as told then.
  mutating func shouldNotify(_ actor: ActorID, of device: DeviceID) -> Bool {
    guard isConflict(device), (histories[device]?.notifiedActors.count ?? 0) < Self.devices else {
      return false
    }
    return histories[device]?.notifiedActors.insert(actor).inserted ?? false
  }

  /// What people are told of it.
  static func conflictMessage(_ name: String, hosts: [String]) -> String {
    "\(conflictText) \(name) (\(hosts.joined(separator: ", "))), and displace each other: \(remedy)"
  }

  /// What people are told of it on one of the two copies, which knows only what a member told.
  static func ownConflictMessage(_ why: String) -> String {
    "another running copy bears the identity of this one, and they displace each other: "
      + (why.contains(conflictText) ? why : "\(why): \(remedy)")
  }

  private static let remedy =
    "stop one of them; if both are to stay, destroy the store of that one and let it join anew with an invitation"
}

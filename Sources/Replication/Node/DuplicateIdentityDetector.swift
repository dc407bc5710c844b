internal import SyncStore

/// Detects two running copies with one identity: their connections displace each other. A value, without a
/// clock.
///
/// One connection from another address is a laptop that moved or a connection that died; several within
/// minutes mean that a directory was copied, key included.
struct DuplicateIdentityDetector {
  /// Where a connection came from.
  struct Origin: Hashable {
    var host: String
    /// The copy's incarnation, once its hello has named it.
    var actor: ActorID?

    /// Whether the two are certainly different copies.
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
    /// The incarnations that were told of the conflict.
    var notifiedActors: Set<ActorID> = []
  }

  /// This many displacements within `windowMilliseconds` make a conflict.
  static let conflictThreshold = 3
  static let windowMilliseconds: UInt64 = 600_000
  /// Upper bound on the devices whose displacements are counted.
  private static let devices = 1024
  /// The text that tells a copy that its connection was displaced.
  static let displacedText = "another connection of this device"

  /// The text by which a member says that it has counted enough displacements.
  static let conflictText = "two running copies bear the identity of"

  private var histories: [DeviceID: DisplacementHistory] = [:]

  /// Whether a conflict of the device was reported and displacements have continued since.
  func isConflict(_ device: DeviceID) -> Bool { histories[device]?.isReported ?? false }

  /// Records that a connection of the device displaced another one, or was rejected because of it. Returns
  /// the hosts involved the first time that the conflict is certain; nil otherwise.
  mutating func displaced(
    _ device: DeviceID, by new: Origin, from old: Origin, at now: UInt64
  ) -> [String]? {
    new.differs(from: old) ? count(1, of: device, hosts: [new.host, old.host], at: now) : nil
  }

  /// Records that a member told this copy, which owns the device, that another connection took its place, and
  /// `why`. True the first time that the conflict is certain: at once if the member, which counts
  /// displacements, is certain.
  mutating func reportedDisplaced(_ device: DeviceID, reason why: String, at now: UInt64) -> Bool {
    count(why.contains(Self.conflictText) ? Self.conflictThreshold : 1, of: device, hosts: [], at: now) != nil
  }

  /// Counts `number` displacements of the device. Returns as `displaced`.
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

  /// Whether this incarnation must still be told of a conflict of the device. True marks it as told.
  mutating func shouldNotify(_ actor: ActorID, of device: DeviceID) -> Bool {
    guard isConflict(device), (histories[device]?.notifiedActors.count ?? 0) < Self.devices else {
      return false
    }
    return histories[device]?.notifiedActors.insert(actor).inserted ?? false
  }

  /// The message about a conflict.
  static func conflictMessage(_ name: String, hosts: [String]) -> String {
    "\(conflictText) \(name) (\(hosts.joined(separator: ", "))), and displace each other: \(remedy)"
  }

  /// The message about a conflict on one of the two copies, which knows only what a member reported.
  static func ownConflictMessage(_ why: String) -> String {
    "another running copy bears the identity of this one, and they displace each other: "
      + (why.contains(conflictText) ? why : "\(why): \(remedy)")
  }

  private static let remedy =
    "stop one of them; if both are to stay, destroy the store of that one and let it join anew with an invitation"
}

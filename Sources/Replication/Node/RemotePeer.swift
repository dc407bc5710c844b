internal import SyncStore

/// Who is at the other end of a session, and what the node lets it cause.
struct RemotePeer: Sendable {
  /// Its key, as TLS has proven.
  let device: DeviceID
  /// The right with which it was let in. The member's record may say something else by now.
  let right: MemberRight
  /// For whom large values are being read through.
  let scans: HoldingsScans
  /// How often peers have made this copy a new actor.
  let renewals: Locked<RenewalThrottle>
}

/// For which devices large values are being read through, so that they may let go of their own: one question of a device at a time,
/// whichever session it comes in. Thread-safe.
///
/// A member that may only read has no say in how busy this copy is: what is read for it within some time is bounded
/// (`WireLimits.readOnlyScanBytesPerSecond`).
final class HoldingsScans: Sendable {
  private struct Scan {
    var isUnderWay = false
    /// When the next one may begin, in milliseconds of a clock that does not step.
    var next: UInt64 = 0
  }

  private let scans = LockedField<[DeviceID: Scan]>([:])

  /// Devices that are remembered at most, besides those whose question is being answered.
  private static let mostRemembered = 4096

  /// May blobs of so many bytes be read through for the device now? If so, `end` is to be called.
  func begin(for device: DeviceID, _ right: MemberRight, bytes: UInt64, at now: UInt64) -> Bool {
    scans.withLock { scans in
      let scan = scans[device] ?? Scan()
      guard !scan.isUnderWay, scan.next <= now else { return false }
      if scans.count >= Self.mostRemembered {
        scans = scans.filter { $0.value.isUnderWay || $0.value.next > now }
      }
      let pause = right == .readOnly ? bytes / (WireLimits.readOnlyScanBytesPerSecond / 1000) : 0
      scans[device] = Scan(isUnderWay: true, next: now + pause)
      return true
    }
  }

  /// The question of the device was answered, or given up.
  func end(for device: DeviceID, at now: UInt64) {
    scans.withLock { scans in
      guard let scan = scans[device] else { return }
      scans[device] = scan.next > now ? Scan(isUnderWay: false, next: scan.next) : nil
    }
  }
}

/// How often peers may make this copy a new actor (rule R9): each costs a name in every vector for ever. A value without a clock.
///
/// Invariant: no more than `WireLimits.renewals` within any `WireLimits.renewalMilliseconds`. A peer that was put back, or a clone, needs
/// one or two.
struct RenewalThrottle: Sendable {
  private var times: [UInt64] = []

  /// May there be one at `milliseconds`, on a clock that does not step?
  func admits(at milliseconds: UInt64) -> Bool {
    times.count { milliseconds < $0 + WireLimits.renewalMilliseconds } < WireLimits.renewals
  }

  /// There is one.
  mutating func count(at milliseconds: UInt64) {
    times.removeAll { $0 + WireLimits.renewalMilliseconds <= milliseconds }
    times.append(milliseconds)
  }
}

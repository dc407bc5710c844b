internal import SyncStore

/// The peer of a session, and the bounds on what the node lets it cause.
struct RemotePeer: Sendable {
  /// Its key, as proven by TLS.
  let device: DeviceID
  /// The right with which it was admitted. The member's record may state another one by now.
  let right: MemberRight
  /// Devices for which large values are being read through.
  let scans: HoldingsScans
  /// Bounds how often peers make this copy a new actor.
  let renewals: Locked<RenewalThrottle>
}

/// Admits reading large values through for a device that wants to evict its own copies: one question per
/// device at a time, whichever session it arrives in. Thread-safe.
///
/// A read-only member must not keep this copy busy: what is read for it over time is bounded
/// (`WireLimits.readOnlyScanBytesPerSecond`).
final class HoldingsScans: Sendable {
  private struct Scan {
    var isUnderWay = false
    /// When the next one may begin, by a monotonic clock, in milliseconds.
    var next: UInt64 = 0
  }

  private let scans = LockedField<[DeviceID: Scan]>([:])

  /// Upper bound on remembered devices, besides those whose question is being answered.
  private static let mostRemembered = 4096

  /// Whether `bytes` of blobs may be read through for the device now. If true, call `end` afterwards.
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

  /// Ends the scan for the device, completed or given up.
  func end(for device: DeviceID, at now: UInt64) {
    scans.withLock { scans in
      guard let scan = scans[device] else { return }
      scans[device] = scan.next > now ? Scan(isUnderWay: false, next: scan.next) : nil
    }
  }
}

/// Limits how often peers make this copy a new actor (rule R9): each costs an entry in every vector for ever.
/// A value without a clock.
///
/// Invariant: no more than `WireLimits.renewals` within any `WireLimits.renewalMilliseconds`. A restored
/// peer, or a clone, needs one or two.
struct RenewalThrottle: Sendable {
  private var times: [UInt64] = []

  /// Whether a renewal is allowed at `milliseconds`, by a monotonic clock.
  func admits(at milliseconds: UInt64) -> Bool {
    times.count { milliseconds < $0 + WireLimits.renewalMilliseconds } < WireLimits.renewals
  }

  /// Counts a renewal.
  mutating func count(at milliseconds: UInt64) {
    times.removeAll { $0 + WireLimits.renewalMilliseconds <= milliseconds }
    times.append(milliseconds)
  }
}

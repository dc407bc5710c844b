private import SyncStore

/// Is the other side still there (F68), at a rate worth keeping the connection for (F88), and does it read
/// what it is sent (F90)?
struct Liveness {
  /// Bytes and whole frames that came since the last tick, and bytes that went.
  var bytes = 0
  var frames = 0
  var sent = 0
  let pingSeconds: Int
  private(set) var ticks: UInt64 = 0
  private var silentTicks = 0
  private var stalledTicks = 0

  init(pingSeconds: Int) { self.pingSeconds = pingSeconds }

  /// Seconds of silence after which the connection is given up: pings among them that were not answered.
  var idleSeconds: Int { max(Limits.idleSeconds, 3 * pingSeconds) }

  /// Bytes that keep the connection if they come between two ticks: the rate is the same whatever the interval.
  private var minimumBytes: Int { max(1, WireLimits.minimumBytesPerMinute * pingSeconds / 60) }

  /// Did nothing come since the last tick but one?
  var isSilent: Bool { silentTicks > 0 }

  /// `pingSeconds` have passed. False if the other side has been silent, or has not read, for too
  /// long. What was not read because this side paused does not count against the other.
  mutating func tick(isPaused: Bool, queued: Int) -> Bool {
    let isAlive = isPaused || frames > 0 || bytes >= minimumBytes
    silentTicks = isAlive ? 0 : silentTicks + 1
    stalledTicks = queued == 0 || sent > 0 ? 0 : stalledTicks + 1
    ticks += 1
    (bytes, frames, sent) = (0, 0, 0)
    return max(silentTicks, stalledTicks) * pingSeconds < idleSeconds
  }
}

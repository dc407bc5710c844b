private import SyncStore

/// Detects a peer that is silent (F68), sends too slowly to keep the connection (F88), or does not read
/// (F90).
struct Liveness {
  /// Bytes and complete frames received since the last tick, and bytes sent.
  var bytes = 0
  var frames = 0
  var sent = 0
  let pingSeconds: Int
  private(set) var ticks: UInt64 = 0
  private var silentTicks = 0
  private var stalledTicks = 0

  init(pingSeconds: Int) { self.pingSeconds = pingSeconds }

  /// Seconds of silence after which the connection is closed, including unanswered pings.
  var idleSeconds: Int { max(Limits.idleSeconds, 3 * pingSeconds) }

  /// Bytes between two ticks that keep the connection: the same rate whatever the interval.
  private var minimumBytes: Int { max(1, WireLimits.minimumBytesPerMinute * pingSeconds / 60) }

  /// Whether nothing arrived in the last complete tick interval.
  var isSilent: Bool { silentTicks > 0 }

  /// Called every `pingSeconds`. False if the other side has been silent, or has not read, for too long.
  ///
  /// Bytes left unread because this side paused do not count against the other.
  mutating func tick(isPaused: Bool, queued: Int) -> Bool {
    let isAlive = isPaused || frames > 0 || bytes >= minimumBytes
    silentTicks = isAlive ? 0 : silentTicks + 1
    stalledTicks = queued == 0 || sent > 0 ? 0 : stalledTicks + 1
    ticks += 1
    (bytes, frames, sent) = (0, 0, 0)
    return max(silentTicks, stalledTicks) * pingSeconds < idleSeconds
  }
}

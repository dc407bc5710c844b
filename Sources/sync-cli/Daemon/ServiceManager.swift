/// Notifications to systemd, if systemd started the daemon (sd_notify(3), without its library).
struct ServiceManager {
  private let socket = System.environment("NOTIFY_SOCKET")
  /// Seconds between two watchdog notifications; nil if there is no watchdog.
  let watchdogSeconds: Double?

  /// Reads the environment.
  init() {
    let addressee = System.environment("WATCHDOG_PID").flatMap { Int32($0) }
    let microseconds = System.environment("WATCHDOG_USEC").flatMap { UInt64($0) }
    let isMeant = addressee == nil || addressee == System.processID
    // Twice as often as required, so that one late notification does no harm.
    watchdogSeconds = isMeant ? microseconds.map { max(0.1, Double($0) / 2e6) } : nil
  }

  /// Sends a state, such as `READY=1`.
  func notify(_ state: String) {
    if let socket { _ = System.send(state, toSocketAt: socket) }
  }

  /// Tells a watchdog, if there is one, that the daemon is alive.
  func feedWatchdog() {
    if watchdogSeconds != nil { notify("WATCHDOG=1") }
  }
}

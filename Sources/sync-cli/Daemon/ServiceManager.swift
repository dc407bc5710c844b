/// What the daemon tells systemd, if systemd started it (sd_notify(3), without its library).
struct ServiceManager {
  private let socket = System.environment("NOTIFY_SOCKET")
  /// Seconds between two signs of life; nil if nobody waits for them.
  let watchdogSeconds: Double?

  /// Reads what the environment says.
  init() {
    let addressee = System.environment("WATCHDOG_PID").flatMap { Int32($0) }
    let microseconds = System.environment("WATCHDOG_USEC").flatMap { UInt64($0) }
    let isMeant = addressee == nil || addressee == System.processID
    // Twice as often as asked for: one that is late is not yet missed.
    watchdogSeconds = isMeant ? microseconds.map { max(0.1, Double($0) / 2e6) } : nil
  }

  /// Tells a state, such as `READY=1`.
  func notify(_ state: String) {
    if let socket { _ = System.send(state, toSocketAt: socket) }
  }
}

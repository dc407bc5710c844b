/// A line on a terminal that tells how far a long command has come, how fast, and how much time is left.
struct Progress {
  private let title: String
  private var totalBytes: UInt64
  private let enabled: Bool
  private let start = System.monotonicSeconds
  private var shownAt = 0.0
  private var shown = false
  private static let intervalSeconds = 0.1
  private static let barWidth = 24

  /// A bar for work on `totalBytes` bytes; silent unless `enabled`.
  init(_ title: String, totalBytes: UInt64, enabled: Bool) {
    (self.title, self.totalBytes, self.enabled) = (title, totalBytes, enabled)
  }

  /// Seconds since the beginning.
  var seconds: Double { System.monotonicSeconds - start }

  /// Tells that `bytes` bytes of `total` are done, for work whose size shows only on the way.
  mutating func update(bytes: UInt64, of total: UInt64, _ detail: String) {
    totalBytes = total
    update(bytes: bytes, detail)
  }

  /// Tells that `bytes` bytes are done, and what else.
  mutating func update(bytes: UInt64, _ detail: String) {
    let (title, total) = (title, totalBytes)
    show { Self.line(title, bytes: bytes, of: total, seconds: $0, detail) }
  }

  /// Shows a text of the caller's own, made of the seconds since the beginning.
  mutating func show(_ text: (_ seconds: Double) -> String) {
    guard enabled else { return }
    let now = System.monotonicSeconds
    guard now - shownAt >= Self.intervalSeconds else { return }
    (shownAt, shown) = (now, true)
    Diagnostics.write("\r\(text(now - start))\u{1B}[K")
  }

  /// Takes the line away.
  func finish() {
    if shown { Diagnostics.write("\r\u{1B}[K") }
  }

  /// The text of the line.
  static func line(_ title: String, bytes: UInt64, of total: UInt64, seconds: Double, _ detail: String)
    -> String
  {
    let fraction = total == 0 ? 1 : min(1, Double(bytes) / Double(total))
    let filled = Int(fraction * Double(barWidth))
    let bar = String(repeating: "#", count: filled) + String(repeating: "·", count: barWidth - filled)
    let rate = seconds > 0 ? Double(bytes) / seconds : 0
    let left =
      rate > 0 && total > bytes ? ", \(Text.duration(seconds: Double(total - bytes) / rate)) left" : ""
    return "\(title) [\(bar)] \(Int(fraction * 100))% \(detail), \(Text.size(UInt64(rate)))/s\(left)"
  }
}

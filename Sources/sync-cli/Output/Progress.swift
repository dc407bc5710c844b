/// A progress line on a terminal, with speed and remaining time. It never exceeds the terminal's width: a
/// wrapped line could not be replaced.
struct Progress {
  private let title: String
  private var totalBytes: UInt64
  private let enabled: Bool
  private let start = System.monotonicSeconds
  private var shownAt = 0.0
  private var shown = false
  private static let intervalSeconds = 0.1
  private static let barWidths = [24, 10]
  /// Columns if the terminal does not report its width.
  private static let usualColumns = 80

  /// Creates a progress line for work on `totalBytes` bytes; silent unless `enabled`.
  init(_ title: String, totalBytes: UInt64, enabled: Bool) {
    (self.title, self.totalBytes, self.enabled) = (title, totalBytes, enabled)
  }

  /// Seconds since the start.
  var seconds: Double { System.monotonicSeconds - start }

  /// Reports that `bytes` bytes of `total` are done, for work whose size becomes known on the way.
  mutating func update(bytes: UInt64, of total: UInt64, _ detail: String) {
    totalBytes = total
    update(bytes: bytes, detail)
  }

  /// Reports that `bytes` bytes are done, with a detail.
  mutating func update(bytes: UInt64, _ detail: String) {
    let (title, total) = (title, totalBytes)
    show { Self.lines(title, bytes: bytes, of: total, seconds: $0, detail) }
  }

  /// Shows the first of the caller's texts that fits the terminal. They are made from the elapsed seconds and
  /// sorted longest first; the last one is cut if it does not fit either.
  mutating func show(_ texts: (_ seconds: Double) -> [String]) {
    guard enabled else { return }
    let now = System.monotonicSeconds
    guard now - shownAt >= Self.intervalSeconds else { return }
    (shownAt, shown) = (now, true)
    Diagnostics.showLine(Self.fitting(texts(now - start), System.terminalColumns(2) ?? Self.usualColumns))
  }

  /// Removes the line.
  func finish() {
    if shown { Diagnostics.showLine(nil) }
  }

  /// The first of `texts` that fits into `columns`, otherwise the beginning of the last one. The last column
  /// stays empty: many terminals wrap when it is written.
  static func fitting(_ texts: [String], _ columns: Int) -> String {
    let room = max(1, columns - 1)
    if let text = texts.first(where: { $0.unicodeScalars.count <= room }) { return text }
    return String(String.UnicodeScalarView((texts.last ?? "").unicodeScalars.prefix(room)))
  }

  /// The texts of the line, longest first.
  static func lines(
    _ title: String, bytes: UInt64, of total: UInt64, seconds: Double, _ detail: String
  ) -> [String] {
    let fraction = total == 0 ? 1 : min(1, Double(bytes) / Double(total))
    let share = "\(Int(fraction * 100))%"
    let rate = seconds > 0 ? Double(bytes) / seconds : 0
    let left =
      rate > 0 && total > bytes ? ", \(Text.duration(seconds: Double(total - bytes) / rate)) left" : ""
    let speed = ", \(Text.size(UInt64(rate)))/s"
    let bars = barWidths.map { width in
      let filled = Int(fraction * Double(width))
      let bar = String(repeating: "#", count: filled) + String(repeating: "·", count: width - filled)
      return "\(title) [\(bar)] \(share) \(detail)\(speed)\(left)"
    }
    return bars + [
      "\(title) \(share) \(detail)\(speed)\(left)", "\(title) \(share)\(speed)\(left)",
      "\(title) \(share)\(left)", "\(title) \(share)", share,
    ]
  }
}

import Foundation

/// The headline figures of a run as an SVG picture: a row for each workload, a dot for each engine, and the time of one
/// operation on a logarithmic axis.
struct Plot {
  /// One workload: nanoseconds of one operation, by engine.
  struct Row {
    let workload: String
    let times: [(engine: String, nanoseconds: Double)]
  }

  /// The workloads that are drawn, in this order. Those that a run does not contain are left out.
  static let workloads = [
    "put", "overwrite", "transaction", "get-in-place", "get", "miss", "scan", "durable-put",
  ]

  private static let colours = [
    "syncstore": "#d1495b", "lmdb": "#35658f", "leveldb": "#6a994e", "rocksdb": "#8f6a1d",
    "sqlite": "#7d5ba6",
  ]
  private static let width = 760.0
  private static let left = 130.0
  private static let top = 64.0
  private static let step = 30.0

  let rows: [Row]
  /// Below the picture: the machine and the size of the run.
  let caption: String

  /// The picture; nil if no row has a time.
  var svg: String? {
    let all = rows.flatMap { $0.times.map(\.nanoseconds) }.filter { $0 > 0 }
    guard let least = all.min(), let most = all.max() else { return nil }
    let decades = Int(log10(least).rounded(.down))...max(Int(log10(most).rounded(.up)), 1)
    let height = Self.top + Double(rows.count) * Self.step + 52
    func position(_ nanoseconds: Double) -> Double {
      let share =
        (log10(nanoseconds) - Double(decades.lowerBound))
        / Double(max(decades.upperBound - decades.lowerBound, 1))
      return ((Self.left + share * (Self.width - Self.left - 30)) * 10).rounded() / 10
    }
    var lines = [
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(Int(Self.width)) \(Int(height))\" "
        + "font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\" aria-labelledby=\"t\">",
      "  <title id=\"t\">Time of one operation, by engine; further left is faster</title>",
      "  <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
    ]
    lines += legend
    lines += decades.flatMap { axis($0, at: position(pow(10, Double($0))), height: height) }
    for (index, row) in rows.enumerated() {
      let y = Self.top + (Double(index) + 0.5) * Self.step
      lines.append("  <text x=\"12\" y=\"\(y + 4)\" fill=\"#333\">\(row.workload)</text>")
      // The store last, so that its dot lies above the others.
      for (engine, time) in row.times.reversed() where time > 0 {
        lines.append(
          "  <circle cx=\"\(position(time))\" cy=\"\(y)\" r=\"\(engine == SyncStorePeer.title ? 7 : 5)\" "
            + "fill=\"\(Self.colours[engine] ?? "#777")\"><title>\(engine): \(Self.text(time))</title></circle>"
        )
      }
    }
    lines.append("  <text x=\"12\" y=\"\(height - 10)\" fill=\"#777\" font-size=\"11\">\(caption)</text>")
    return (lines + ["</svg>", ""]).joined(separator: "\n")
  }

  private var legend: [String] {
    var engines: [String] = []
    for row in rows {
      for time in row.times where !engines.contains(time.engine) { engines.append(time.engine) }
    }
    return engines.enumerated().flatMap { index, engine in
      let x = Self.left + Double(index) * 110
      return [
        "  <circle cx=\"\(x)\" cy=\"20\" r=\"6\" fill=\"\(Self.colours[engine] ?? "#777")\"/>",
        "  <text x=\"\(x + 12)\" y=\"24\" fill=\"#333\">\(engine)</text>",
      ]
    }
  }

  private func axis(_ decade: Int, at x: Double, height: Double) -> [String] {
    let bottom = height - 48
    return [
      "  <path d=\"M\(x) \(Self.top) V\(bottom)\" stroke=\"#ddd\"/>",
      "  <text x=\"\(x)\" y=\"\(bottom + 16)\" fill=\"#777\" font-size=\"11\" text-anchor=\"middle\">"
        + "\(Self.text(pow(10, Double(decade))))</text>",
    ]
  }

  private static func text(_ nanoseconds: Double) -> String {
    let (value, unit) =
      nanoseconds >= 1_000_000
      ? (nanoseconds / 1_000_000, "ms")
      : nanoseconds >= 1000 ? (nanoseconds / 1000, "µs") : (nanoseconds, "ns")
    return value.formatted(.number.precision(.significantDigits(1...3))) + " " + unit
  }
}

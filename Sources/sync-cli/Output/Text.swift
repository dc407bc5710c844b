private import SyncStore

/// Formats and parses bytes, sizes and times.
enum Text {
  /// UTF-8 text in which everything that would upset a terminal or a line is written as `\xNN`.
  static func printable(_ bytes: some Sequence<UInt8>) -> String {
    let bytes = Array(bytes)
    guard let text = String(validating: bytes, as: UTF8.self) else {
      return bytes.map { (0x20..<0x7F).contains($0) ? String(UnicodeScalar($0)) : escaped($0) }.joined()
    }
    var shown = ""
    for scalar in text.unicodeScalars {
      switch scalar.properties.generalCategory {
      case .control, .lineSeparator, .paragraphSeparator, .format:
        shown += String(scalar).utf8.map(escaped).joined()
      default: shown.unicodeScalars.append(scalar)
      }
    }
    return shown
  }

  private static func escaped(_ byte: UInt8) -> String {
    "\\x" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
  }

  /// `12 B`, `3.4 KiB`, `5.6 MiB` …
  static func size(_ bytes: some BinaryInteger) -> String {
    var (value, unit) = (Double(bytes), 0)
    let units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024, unit < units.count - 1 { (value, unit) = (value / 1024, unit + 1) }
    return unit == 0 ? "\(bytes) B" : "\(decimal(value)) \(units[unit])"
  }

  /// The text with blanks before it, as a column of that width.
  static func padded(_ text: String, to width: Int) -> String {
    String(repeating: " ", count: max(0, width - text.count)) + text
  }

  /// One digit after the point.
  static func decimal(_ value: Double) -> String {
    let tenths = Int((value * 10).rounded())
    return "\(tenths / 10).\(abs(tenths % 10))"
  }

  /// An amount of money: two digits after the point, four below 1.
  static func amount(_ value: Double) -> String {
    let digits = value < 1 ? 10_000.0 : 100
    let scaled = (min(max(0, value), 1e12) * digits).rounded()
    if value > 0, scaled == 0 { return "below 0.0001" }
    let (whole, rest) = (UInt64(scaled / digits), "\(UInt64(scaled) % UInt64(digits))")
    let zeros = (digits == 100 ? 2 : 4) - rest.count
    return "\(whole)." + String(repeating: "0", count: zeros) + rest
  }

  /// `1 key`, `2 keys`; `plural` is for nouns that take more than an "s".
  static func count(_ count: some BinaryInteger, noun: String, plural: String? = nil) -> String {
    CountText.of(count, noun: noun, plural: plural)
  }

  /// `45s`, `2m05s`, `3h10m`, `4d02h`.
  static func duration(seconds: Double) -> String {
    let total = Int(max(0, min(seconds, 1e9)).rounded())
    func two(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
    switch total {
    case ..<60: return "\(total)s"
    case ..<3600: return "\(total / 60)m\(two(total % 60))s"
    case ..<86_400: return "\(total / 3600)h\(two(total / 60 % 60))m"
    default: return "\(total / 86_400)d\(two(total / 3600 % 24))h"
    }
  }

  /// Milliseconds of a duration such as `90s`, `30m`, `1h`, `7d`, `2w`, `250ms`; nil if invalid or above 100
  /// years.
  static func milliseconds(_ text: String) -> UInt64? {
    let units: [(String, UInt64)] = [
      ("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000),
    ]
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let amount = UInt64(digits), amount > 0,
      let unit = units.first(where: { $0.0 == text.dropFirst(digits.count) })
    else { return nil }
    let (product, overflow) = amount.multipliedReportingOverflow(by: unit.1)
    return overflow || product > 100 * 366 * 86_400_000 ? nil : product
  }

  /// Bytes of a size such as `4096`, `500K`, `20M`, `3G`, `1T`, in powers of 1024; nil if invalid.
  static func bytes(_ text: String) -> UInt64? {
    let units: [(String, UInt64)] = [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)]
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let amount = UInt64(digits), let unit = units.first(where: { $0.0 == text.dropFirst(digits.count) })
    else { return nil }
    let (product, overflow) = amount.multipliedReportingOverflow(by: unit.1)
    return overflow ? nil : product
  }

  /// `2026-11-21T10:15:30.123Z`. The calendar is Howard Hinnant's `civil_from_days`
  /// (https://howardhinnant.github.io/date_algorithms.html).
  static func date(milliseconds: UInt64) -> String {
    let days = Int(milliseconds / 86_400_000) + 719_468
    let era = days / 146_097
    let dayOfEra = days - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shifted = (5 * dayOfYear + 2) / 153
    let day = dayOfYear - (153 * shifted + 2) / 5 + 1
    let month = shifted < 10 ? shifted + 3 : shifted - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    func padded(_ value: Int, _ width: Int) -> String {
      String(repeating: "0", count: max(0, width - String(value).count)) + String(value)
    }
    let inDay = Int(milliseconds % 86_400_000)
    let time = [inDay / 3_600_000, inDay / 60_000 % 60, inDay / 1000 % 60].map { padded($0, 2) }
    return "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))T\(time.joined(separator: ":"))"
      + ".\(padded(inDay % 1000, 3))Z"
  }
}

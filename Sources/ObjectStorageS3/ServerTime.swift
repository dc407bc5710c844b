internal import SyncStore

/// Reads the times of answers.
enum ServerTime {
  private static let months = Array("JanFebMarAprMayJunJulAugSepOctNovDec".utf8)

  /// Milliseconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`, the form that HTTP prescribes; nil for any
  /// other.
  static func http(_ text: String) -> UInt64? {
    let parts = text.utf8.split(separator: UInt8(ascii: " "))
    guard parts.count == 6, parts[5].elementsEqual("GMT".utf8), parts[2].count == 3 else { return nil }
    let month = stride(from: 0, to: months.count, by: 3).first {
      months[$0..<($0 + 3)].elementsEqual(parts[2])
    }
    guard let month, let day = number(parts[1]), let year = number(parts[3]),
      let time = clock(parts[4].split(separator: UInt8(ascii: ":")))
    else { return nil }
    return milliseconds(year: year, month: UInt64(month / 3 + 1), day: day, seconds: time)
  }

  /// Milliseconds since 1970 of `2009-10-12T17:50:30.000Z`, also without a fraction; nil for any other form.
  static func iso(_ text: String) -> UInt64? {
    let halves = text.utf8.split(separator: UInt8(ascii: "T"))
    guard halves.count == 2, halves[1].last == UInt8(ascii: "Z") else { return nil }
    let date = halves[0].split(separator: UInt8(ascii: "-")).map(number)
    let time = halves[1].dropLast().split(separator: UInt8(ascii: "."))
    guard date.count == 3, let year = date[0], let month = date[1], let day = date[2], let first = time.first,
      time.count <= 2, let seconds = clock(first.split(separator: UInt8(ascii: ":"))),
      let whole = milliseconds(year: year, month: month, day: day, seconds: seconds)
    else { return nil }
    guard time.count == 2 else { return whole }
    let digits =
      Array(time[1].prefix(3)) + [UInt8](repeating: UInt8(ascii: "0"), count: 3 - min(3, time[1].count))
    return number(digits).map { whole + $0 }
  }

  private static func number(_ digits: some Collection<UInt8>) -> UInt64? {
    guard (1...9).contains(digits.count) else { return nil }
    var value: UInt64 = 0
    for digit in digits {
      guard (0x30...0x39).contains(digit) else { return nil }
      value = value * 10 + UInt64(digit - 0x30)
    }
    return value
  }

  /// Seconds since midnight of hours, minutes and seconds.
  private static func clock(_ parts: [some Collection<UInt8>]) -> UInt64? {
    guard parts.count == 3, let hours = number(parts[0]), let minutes = number(parts[1]),
      let seconds = number(parts[2]), hours < 24, minutes < 60, seconds <= 60
    else { return nil }
    return hours * 3600 + minutes * 60 + seconds
  }

  /// Of the proleptic Gregorian calendar, with years that begin in March.
  private static func milliseconds(year: UInt64, month: UInt64, day: UInt64, seconds: UInt64) -> UInt64? {
    guard (1970...9999).contains(year), (1...12).contains(month), (1...31).contains(day) else { return nil }
    let (shiftedYear, shiftedMonth) = month > 2 ? (year, month - 3) : (year - 1, month + 9)
    let leapDays = shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400
    let days = shiftedYear * 365 + leapDays + (153 * shiftedMonth + 2) / 5 + day - 1
    return (days - 719_468) * 86_400_000 + seconds * 1000
  }
}

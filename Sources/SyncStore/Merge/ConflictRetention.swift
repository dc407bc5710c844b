/// How long the losing values of conflicts are kept: a decision without I/O.
///
/// A loser's own stamp says when it was written, not when it lost: what an absent member wrote months ago is
/// a new conflict when it arrives. So the copy records, once on each day with a conflict, its journal
/// position at that time.
struct ConflictRetention: Equatable, Sendable {
  /// A day, counted from the beginning of 1970, and the last position before its first conflict.
  struct Day: Equatable, Sendable {
    var number: UInt32
    var position: UInt64
  }

  /// In order, without days older than the retention time.
  private(set) var days: [Day] = []

  private static let dayMilliseconds: UInt64 = 86_400_000

  private static func number(of time: UInt64) -> UInt32 { UInt32(clamping: time / dayMilliseconds) }

  /// Records a conflict at `time`, in milliseconds since 1970, after a position of the journal. Returns false
  /// if the day was recorded already.
  mutating func recordConflict(at time: UInt64, after position: UInt64) -> Bool {
    let today = Self.number(of: time)
    // A clock that was set back makes nothing older.
    if let last = days.last, last.number >= today { return false }
    let oldest = Self.number(of: time - min(time, Limits.conflictMilliseconds))
    days = days.filter { $0.number >= oldest } + [Day(number: today, position: position)]
    return true
  }

  /// The indices of the losers, each given with its position and size in bytes, that are kept at `time`:
  /// those of the last `Limits.conflictMilliseconds`, and of these the newest, up to `bytes` in all.
  func kept(of beaten: [(position: UInt64, bytes: Int)], at time: UInt64, bytes: Int) -> Set<Int> {
    let oldest = Self.number(of: time - min(time, Limits.conflictMilliseconds))
    // Losers before the first recorded day were written by a program that recorded none: their age is
    // unknown.
    let first = days.isEmpty ? 0 : days.first { $0.number >= oldest }?.position ?? .max
    var kept: Set<Int> = []
    var left = bytes
    for index in beaten.indices.sorted(by: { beaten[$0].position > beaten[$1].position }) {
      left -= beaten[index].bytes
      guard left >= 0, beaten[index].position >= first else { break }
      kept.insert(index)
    }
    return kept
  }

  /// The encoded days: number (4 bytes) and position (8) of each.
  var bytes: [UInt8] {
    var writer = ByteWriter()
    for day in days {
      writer.write(day.number)
      writer.write(day.position)
    }
    return writer.bytes
  }

  init() {}

  init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    while reader.remaining > 0 { days.append(Day(number: try reader.read(), position: try reader.read())) }
  }
}

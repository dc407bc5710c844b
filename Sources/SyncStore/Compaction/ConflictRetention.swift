/// How long beaten values of conflicts are kept: a decision without I/O.
///
/// A beaten value's own stamp says when it was written, not when it was beaten: what an absent member wrote months ago is news when it
/// comes. So the copy notes, once a day on which a conflict comes up, where its journal stood then.
struct ConflictRetention: Equatable, Sendable {
  /// A day, counted from the beginning of 1970, and the last position before its first conflict.
  struct Day: Equatable, Sendable {
    var number: UInt32
    var position: UInt64
  }

  /// In order. Those beyond the time that conflicts are kept are left out.
  private(set) var days: [Day] = []

  private static let dayMilliseconds: UInt64 = 86_400_000

  private static func number(of time: UInt64) -> UInt32 { UInt32(clamping: time / dayMilliseconds) }

  /// A conflict comes up at `time`, in milliseconds since 1970, behind a position of the journal. False if the day was noted already.
  mutating func recordConflict(at time: UInt64, after position: UInt64) -> Bool {
    let today = Self.number(of: time)
    // A clock that was put back makes nothing older.
    if let last = days.last, last.number >= today { return false }
    let oldest = Self.number(of: time - min(time, Limits.conflictMilliseconds))
    days = days.filter { $0.number >= oldest } + [Day(number: today, position: position)]
    return true
  }

  /// Which of the beaten values, each with its position and its size in bytes, are kept at `time`: their indices. Those of the last
  /// `Limits.conflictMilliseconds`, and of these the newest, up to `bytes` in all.
  func kept(of beaten: [(position: UInt64, bytes: Int)], at time: UInt64, bytes: Int) -> Set<Int> {
    let oldest = Self.number(of: time - min(time, Limits.conflictMilliseconds))
    // What came before the first note is of a program that made none: its age is not known.
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

  /// The notes: each day (4 bytes) and position (8).
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

extension Engine {
  /// The beaten values that are kept for now.
  func keptConflicts() -> [Location] {
    guard !losers.isEmpty else { return [] }
    let beaten = losers.map { place -> (position: UInt64, bytes: Int) in
      guard let segment = journal.segment(place.segment) else { return (.max, 0) }
      let view = RecordView(segment: segment, offset: place.offset)
      // One that cannot be read is left to who verifies.
      return view.isReadable ? (view.position, view.end - view.offset) : (.max, 0)
    }
    let kept = state.conflicts.kept(of: beaten, at: environment.now(), bytes: Limits.conflictBytes)
    return losers.indices.filter { kept.contains($0) }.map { losers[$0] }
  }
}

/// Defects of a segment's file found when it was mapped, and those of them that were repaired. Protected by
/// the engine's lock.
struct FileDefects {
  /// True if one of the two copies of the header is damaged.
  private(set) var isHeaderDamaged = false
  /// Bytes by which the file is shorter than its header states; they read as zeros.
  private(set) var missingBytes = 0
  /// The assumed end of a last segment whose file was truncated within its records; nil for any other
  /// segment. Such a segment is a copy in memory, and nothing is appended to it.
  private(set) var truncatedEnd: Int?
  /// Repairs, as text for people.
  private(set) var repairs: [String] = []

  static let none = FileDefects()

  /// A file that stays shorter than its header states.
  static func short(by missing: Int, truncatedEnd: Int?) -> FileDefects {
    FileDefects(missingBytes: missing, truncatedEnd: truncatedEnd)
  }

  /// A file that was lengthened by `missing` bytes before it was mapped.
  static func lengthened(by missing: Int) -> FileDefects {
    let bytes = CountText.of(missing, noun: "byte")
    return FileDefects(
      repairs: ["its file was \(bytes) shorter than its header says: it was lengthened"])
  }

  /// Records that one of the two copies of the header was found damaged.
  mutating func recordHeaderDamage(isRepaired: Bool) {
    isHeaderDamaged = !isRepaired
    if isRepaired {
      repairs.append("one of the two copies of its header was damaged: it was written anew")
    }
  }

  /// Records that the file of a truncated segment has been lengthened.
  mutating func recordLengthening() {
    missingBytes = 0
    repairs.append("its file was cut within its records: what is lost of them is asked of the peers")
  }

  /// The defects that were not repaired, as text for people.
  func unrepaired(isWritable: Bool) -> [String] {
    var found: [String] = []
    if isHeaderDamaged { found.append(SegmentHeader.oneCopyDamaged(isWritable: isWritable)) }
    if missingBytes > 0 {
      found.append("its file is \(missingBytes) bytes shorter than its header says")
    }
    return found
  }
}

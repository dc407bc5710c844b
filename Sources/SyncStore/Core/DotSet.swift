/// A set of writes. For each actor the sequences are in containers of 2^16, as a sorted array while they are
/// few and as a bitmap when they are many: the first two containers of Roaring bitmaps (Chambi, Lemire,
/// Kaser, Godin, "Better bitmap performance with Roaring bitmaps", 2016). Two bytes or less for each write.
package struct DotSet: Hashable, Sendable {
  private enum Container: Hashable {
    case array([UInt16])
    case bitmap([UInt64])
  }

  private var containers: [ActorID: [UInt64: Container]] = [:]
  /// Number of writes.
  package private(set) var count = 0
  /// Approximate memory use in bytes: `containerBytes` for each container, and 2 for each write in it as long
  /// as it is an array.
  package private(set) var bytes = 0

  /// An array of more elements takes more memory than a bitmap.
  private static let maxArrayCount = 4096
  /// Bytes of a container apart from its elements, with its entry in the table.
  package static let containerBytes = 96

  /// An empty set.
  package init() {}

  /// A set of these writes.
  package init(_ dots: some Sequence<Dot>) { for dot in dots { insert(dot) } }

  /// True if there is no write.
  package var isEmpty: Bool { count == 0 }

  /// True if the set contains the write.
  package func contains(_ dot: Dot) -> Bool {
    guard let container = containers[dot.actor]?[dot.sequence >> 16] else { return false }
    let low = UInt16(truncatingIfNeeded: dot.sequence)
    switch container {
    case .array(let lows):
      let index = Self.index(of: low, in: lows)
      return index < lows.count && lows[index] == low
    case .bitmap(let words): return words[Int(low >> 6)] & 1 << UInt64(low & 63) != 0
    }
  }

  /// Adds a write.
  package mutating func insert(_ dot: Dot) {
    let low = UInt16(truncatingIfNeeded: dot.sequence)
    let more = Self.insert(
      low, into: &containers[dot.actor, default: [:]][dot.sequence >> 16, default: .array([])])
    guard let more else { return }
    count += 1
    bytes += more
  }

  /// Returns the bytes by which the container grew; nil if it had the element.
  private static func insert(_ low: UInt16, into container: inout Container) -> Int? {
    switch consume container {
    case .array(var lows):
      container = .array([])
      let index = lows.last.map { $0 < low } ?? true ? lows.count : index(of: low, in: lows)
      guard index == lows.count || lows[index] != low else {
        container = .array(lows)
        return nil
      }
      let isFirst = lows.isEmpty
      lows.insert(low, at: index)
      let isArray = lows.count <= maxArrayCount
      container = isArray ? .array(lows) : .bitmap(bitmap(of: lows))
      return isFirst ? containerBytes + 2 : isArray ? 2 : 0
    case .bitmap(var words):
      container = .array([])
      let (word, bit) = (Int(low >> 6), UInt64(1) << UInt64(low & 63))
      let isNew = words[word] & bit == 0
      words[word] |= bit
      container = .bitmap(words)
      return isNew ? 0 : nil
    }
  }

  private static func bitmap(of lows: [UInt16]) -> [UInt64] {
    var words = [UInt64](repeating: 0, count: 1024)
    for low in lows { words[Int(low >> 6)] |= 1 << UInt64(low & 63) }
    return words
  }

  /// Number of elements below `low`.
  private static func index(of low: UInt16, in lows: [UInt16]) -> Int {
    var (start, end) = (0, lows.count)
    while start < end {
      let middle = (start + end) / 2
      if lows[middle] < low { start = middle + 1 } else { end = middle }
    }
    return start
  }
}

/// The marks of a copy's own rounds (rule R9).
///
/// A writer adds a mark, while others wait, to a state that readers have copies of. The marks are therefore
/// in many small tables, so that copy-on-write copies only the one that changes. Marks are random: the tables
/// fill evenly.
struct RoundMarks: Sequence, Sendable {
  private typealias Table = [RoundMark: ReplicaState.Mark]

  /// Empty before the first mark.
  private var tables: [Table] = []
  /// Number of marks.
  private(set) var count = 0
  /// The last mark made; nil if it was removed since.
  private(set) var last: RoundMark?

  private static let tableCount = 256
  /// About 65,000 in all. A peer whose cursor has a dropped mark makes this copy a new actor: costly, not
  /// wrong.
  static let maxPerTable = 256

  private static func table(of mark: RoundMark) -> Int { Int(mark.high >> 56) }

  /// The data of a mark; nil if there is no such mark.
  subscript(mark: RoundMark) -> ReplicaState.Mark? {
    get { tables.isEmpty ? nil : tables[Self.table(of: mark)][mark] }
    set {
      if tables.isEmpty {
        guard newValue != nil else { return }
        tables = Array(repeating: [:], count: Self.tableCount)
      }
      let table = Self.table(of: mark)
      let before = tables[table].count
      tables[table][mark] = newValue
      count += tables[table].count - before
    }
  }

  /// Makes `mark` the last one. Its data is nil if a newer program made it.
  mutating func record(_ mark: RoundMark, data: ReplicaState.Mark?) {
    self[mark] = data
    last = mark
  }

  mutating func remove(_ mark: RoundMark) {
    self[mark] = nil
    if last == mark { last = nil }
  }

  /// The mark to drop so that `mark` can be kept: the oldest in its table that is not `used`, or the oldest
  /// of all if each is; nil while there is space.
  func oldest(inPlaceOf mark: RoundMark, used: (RoundMark) -> Bool) -> RoundMark? {
    guard !tables.isEmpty else { return nil }
    let table = tables[Self.table(of: mark)]
    guard table.count >= Self.maxPerTable, table[mark] == nil else { return nil }
    let unused = table.filter { !used($0.key) }
    return (unused.isEmpty ? table : unused).min {
      ($0.value.position, $0.key) < ($1.value.position, $1.key)
    }?.key
  }

  /// All marks, unordered.
  var keys: some Sequence<RoundMark> { lazy.map(\.key) }
  /// The data of each mark, unordered.
  var values: some Sequence<ReplicaState.Mark> { lazy.map(\.value) }

  func makeIterator() -> FlattenSequence<[[RoundMark: ReplicaState.Mark]]>.Iterator {
    tables.joined().makeIterator()
  }
}

/// The marks of a copy's own rounds (rule R9).
///
/// A writer that others wait for adds one to a state of which readers hold copies. So they lie in many small tables, and what is
/// copied then is the one that changes. Marks are random: the tables are about equally full.
struct RoundMarks: Sequence, Sendable {
  private typealias Table = [RoundMark: ReplicaState.Mark]

  /// None before there is a mark.
  private var tables: [Table] = []
  /// How many there are.
  private(set) var count = 0

  private static let tableCount = 256
  /// About 65,000 in all. A peer whose cursor bears one that was given up makes this copy a new actor: tiresome, not wrong.
  static let maxPerTable = 256

  private static func table(of mark: RoundMark) -> Int { Int(mark.high >> 56) }

  /// What is known of a mark; nil if there is no such mark.
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

  /// Which one is to go so that `mark` can be kept: of those in its table the oldest that is not `used`, or the oldest of all if each is;
  /// nil while there is room.
  func oldest(inPlaceOf mark: RoundMark, used: (RoundMark) -> Bool) -> RoundMark? {
    guard !tables.isEmpty else { return nil }
    let table = tables[Self.table(of: mark)]
    guard table.count >= Self.maxPerTable, table[mark] == nil else { return nil }
    let unused = table.filter { !used($0.key) }
    return (unused.isEmpty ? table : unused).min {
      ($0.value.position, $0.key) < ($1.value.position, $1.key)
    }?.key
  }

  /// All of them, without order.
  var keys: some Sequence<RoundMark> { lazy.map(\.key) }
  /// What is known of each, without order.
  var values: some Sequence<ReplicaState.Mark> { lazy.map(\.value) }

  func makeIterator() -> FlattenSequence<[[RoundMark: ReplicaState.Mark]]>.Iterator {
    tables.joined().makeIterator()
  }
}

import SyncTestSupport

@testable import SyncStore

/// An element with every kind of property an index supports.
struct Order: Codable, Identifiable, Hashable {
  var id: Int
  var customer: String
  var total: Double = 0
  var note: String?

  static let byCustomer = CollectionIndex("customer", \Order.customer)
  static let byTotal = CollectionIndex("total", \Order.total)
  static let byNote = CollectionIndex("note", \Order.note)
  static let indexes: [any CollectionIndexing<Order>] = [byCustomer, byTotal, byNote]
}

extension StoreCollection where Element == Order {
  /// Whether all indexes agree with a scan of all elements.
  func indexesAreRight() throws -> Bool {
    let all = try all()
    let byCustomer = all.sorted { ($0.customer, $0.id) < ($1.customer, $1.id) }
    let byTotal = all.sorted { ($0.total, $0.id) < ($1.total, $1.id) }
    let byNote = all.filter { $0.note != nil }.sorted { ($0.note ?? "", $0.id) < ($1.note ?? "", $1.id) }
    return try self.all(by: Order.byCustomer) == byCustomer && self.all(by: Order.byTotal) == byTotal
      && self.all(by: Order.byNote) == byNote
  }

  /// Existing index entries, needed or not.
  func entries() throws -> Int {
    try layout.indexPrefixes.reduce(0) { try $0 + source.list(KeyRange(prefix: $1)).count }
  }
}

/// Bytes of a segment's live records. Used for compaction only: it may be off by what one killed writer did
/// not count.
struct LiveByteCounter {
  let page: PageView
  let offset: Int

  /// Values outside are corrupt; clamped before they are used.
  private static let bounds: ClosedRange = -1 << 40...1 << 40

  var live: Int {
    get {
      let live = Int(bitPattern: UInt(page.load(offset)))
      return min(max(live, Self.bounds.lowerBound), Self.bounds.upperBound)
    }
    nonmutating set { page.store(UInt64(UInt(bitPattern: newValue)), at: offset) }
  }
}

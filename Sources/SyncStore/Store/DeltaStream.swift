/// One transfer to a peer: the changes between two positions, or the full state, closed by the sender's
/// vector (rule R10). The snapshot is taken when the round is opened; later writes belong to the next round.
package final class DeltaStream: Sendable {
  struct Item: Sendable {
    var location: Location
    var position: UInt64
    /// Same number for records of one transaction, another one for its neighbours; a transaction is sent in
    /// one batch.
    var group: UInt32
    /// Length of the record in the journal.
    var bytes: UInt32
    /// Whether the receiver already has the record and is only told that it is held here.
    var isPresent: Bool
  }

  /// The message that closes the round.
  package let close: RoundClose
  private let source: DeltaSource
  /// Consecutive lists of whole transactions, none of them empty.
  let items: [[Item]]
  /// Full state only: the receiver got everything up to this position in an earlier round.
  private let start: UInt64
  private let progress = LockedField(Progress(), rank: .stream)
  /// Keeps the segments of the items mapped across compaction.
  private let pin: SnapshotPin

  private struct Progress {
    /// Current list, and number of its items already sent.
    var list = 0
    var next = 0
    /// Reader of the segment of the last item.
    var source: DeltaSegmentReader?
  }

  init(source: DeltaSource, close: RoundClose, items: [[Item]], start: UInt64, pin: SnapshotPin) {
    (self.source, self.close, self.items, self.start, self.pin) = (source, close, items, start, pin)
  }

  /// Number of records to send.
  package var count: Int {
    // Only a full state has items that are merely named.
    items.reduce(0) { $0 + (close.isFull ? $1.count { !$0.isPresent } : $1.count) }
  }

  /// Approximate number of record bytes still to be sent from the current list.
  package var bytesLeft: Int {
    let (list, next) = progress.withLock { ($0.list, $0.next) }
    guard list < items.count else { return 0 }
    // Counts at most 8192 items; callers need no more.
    return items[list][next...].prefix(1 << 13).reduce(0) { $0 + Int($1.bytes) }
  }

  /// Upper bound of the writes that one batch of a full state names.
  private static let maxPresent = 1 << 15

  /// Writes the next batch of whole transactions, about `maximumBytes` bytes of records unless one
  /// transaction is larger; nil at the end. After an error, discard what `writer` has received.
  package func next(
    maximumBytes: Int, into writer: inout some BatchWriter
  ) throws(StoreError) -> BatchSummary? {
    try progress.withLock { progress throws(StoreError) in
      guard progress.list < items.count else { return nil }
      let items = items[progress.list]
      let (runs, end) = Self.runs(of: items, from: progress.next, maximumBytes: maximumBytes)
      var batch = BatchSummary(position: max(start, items[end - 1].position))
      for run in runs {
        if items[run.lowerBound].isPresent {
          batch.present += try source.dots(items[run], pin: pin)
        } else {
          batch.records += run.count
          batch.users += try source.write(items[run], pin: pin, from: &progress.source, into: &writer)
        }
      }
      batch.present.sort()
      (progress.list, progress.next) = end < items.count ? (progress.list, end) : (progress.list + 1, 0)
      return batch
    }
  }

  /// The items of the next batch, whole transactions of them, as alternating runs of records to send and
  /// records that the receiver has.
  private static func runs(
    of items: [Item], from first: Int, maximumBytes: Int
  ) -> (list: [Range<Int>], end: Int) {
    var list: [Range<Int>] = []
    var (present, bytes, end) = (0, 0, first)
    while end < items.count, present < maxPresent {
      var partEnd = end + 1
      let isPresent = items[end].isPresent
      if isPresent {
        while partEnd < items.count, items[partEnd].isPresent, partEnd - end < maxPresent - present {
          partEnd += 1
        }
        present += partEnd - end
      } else {
        var size = Int(items[end].bytes)
        while partEnd < items.count, items[partEnd].group == items[end].group, !items[partEnd].isPresent {
          size += Int(items[partEnd].bytes)
          partEnd += 1
        }
        if bytes > 0, bytes + size > maximumBytes { break }
        bytes += size
      }
      if let last = list.last, items[last.lowerBound].isPresent == isPresent {
        list[list.count - 1] = last.lowerBound..<partEnd
      } else {
        list.append(end..<partEnd)
      }
      end = partEnd
    }
    return (list, end)
  }
}

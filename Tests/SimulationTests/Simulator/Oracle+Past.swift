import SyncStore

extension Oracle {
  /// Which values were replaced by a writer that knew them.
  ///
  /// All written values differ, so a value under a second dot is the same write, reissued. A copy that covers
  /// its replacement knew that the value was dead: it must not bring it back, whether or not it has since
  /// purged the replacement (R8).
  struct Past {
    /// The dot under which a value was first found.
    private var origins: [Content: Dot] = [:]
    /// Origins of all writes a write replaced, directly or indirectly.
    private var replaced: [Dot: Set<Dot>] = [:]
    /// Values found under a further dot and not judged yet.
    fileprivate var again: [Write] = []
    /// How many times a copy reissued a value that had come back to it by its stamp.
    fileprivate(set) var comebacks = 0

    /// Records the dot of this write.
    mutating func bind(_ write: Write) {
      guard let bytes = write.content.bytes else { return }
      let value = Content(bytes: bytes)
      guard origins[value] != nil else { return origins[value] = write.dot }
      again.append(write)
    }

    /// Records that the write `dot` replaced this value.
    mutating func replace(_ bytes: [UInt8], by dot: Dot) {
      guard let origin = origins[Content(bytes: bytes)] else { return }
      replaced[dot, default: []].formUnion(replaced[origin] ?? [])
      replaced[dot]?.insert(origin)
    }

    /// Whether the write `dot` replaced this value.
    fileprivate func has(_ dot: Dot, replaced write: Write) -> Bool {
      guard let bytes = write.content.bytes, let origin = origins[Content(bytes: bytes)] else { return false }
      return replaced[dot]?.contains(origin) ?? false
    }
  }

  /// Observations of one copy since it was opened.
  struct Seen {
    /// How far its journal was read.
    private(set) var position: UInt64 = 0
    /// Its appended dots since it was last judged, in journal order.
    private var appended: [Dot] = []
    /// Its coverage when it was last judged; nil before that.
    private var covered: Coverage?

    /// Adds a journal entry.
    mutating func add(_ entry: LogEntry) {
      position = max(position, entry.position)
      appended.append(entry.dot)
    }

    /// The copy was judged with this coverage.
    fileprivate mutating func judged(_ coverage: Coverage) {
      (appended, covered) = ([], coverage)
    }

    /// Whether the copy knew this write when it appended `own`. Both may be seen at once although the write
    /// arrived later.
    fileprivate func knew(_ dot: Dot, before own: Dot, in coverage: Coverage) -> Bool {
      if covered?.has(dot) ?? false { return true }
      guard let arrival = appended.firstIndex(of: dot) else { return covered == nil && coverage.has(dot) }
      return arrival < appended.firstIndex(of: own) ?? appended.endIndex
    }
  }

  /// Checks what this copy has reissued since the last call: no write that it knew to be dead.
  mutating func judgeReturns(to store: Store, _ name: String, at time: UInt64, _ seen: inout Seen) throws {
    let coverage = Coverage(try store.versionVector())
    defer { seen.judged(coverage) }
    guard !past.again.isEmpty else { return }
    let actor = try store.actor
    let own = past.again.filter { $0.dot.actor == actor }
    past.again.removeAll { $0.dot.actor == actor }
    // A rolled-back machine may know its own later writes as another's.
    guard !own.isEmpty, !hasDoubts else { return }
    let limit = (time + Content.drift) << 16
    for write in own {
      // A parked record beats it when due, or is dropped together with its replacement.
      let over = (byKey[write.key] ?? []).filter {
        $0.dot != write.dot && $0.stamp <= limit && past.has($0.dot, replaced: write)
          && seen.knew($0.dot, before: write.dot, in: coverage)
      }
      guard let greatest = over.last else { continue }
      // Another copy that knew nothing greater may have reissued it earlier, and that write wins by its
      // stamp.
      let isBack = byKey[write.key]?.contains {
        $0.dot.actor != actor && $0.content.bytes == write.content.bytes && greatest < $0
      }
      guard isBack ?? false else {
        throw Violation(
          "\(name) has issued \(write) again, though it covers \(greatest), which had replaced it")
      }
      past.comebacks += 1
    }
  }
}

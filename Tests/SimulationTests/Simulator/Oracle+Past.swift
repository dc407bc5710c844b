import SyncStore

extension Oracle {
  /// Which values were replaced by who knew them.
  ///
  /// All values that programs write differ, so that one that comes under a second dot is the same write, issued again. Who covers
  /// what replaced it knew that it was over: it may not bring it back, whether or not it has purged since what had replaced it (R8).
  struct Past {
    /// The dot under which a value was first found.
    private var origins: [Content: Dot] = [:]
    /// The origins of all that a write replaced, directly or through what it replaced.
    private var replaced: [Dot: Set<Dot>] = [:]
    /// Values that came under a further dot and were not judged yet.
    fileprivate var again: [Write] = []
    /// How often a copy has issued again what had come back to it by its stamp.
    fileprivate(set) var comebacks = 0

    /// A dot was found that names this write.
    mutating func bind(_ write: Write) {
      guard let bytes = write.content.bytes else { return }
      let value = Content(bytes: bytes)
      guard origins[value] != nil else { return origins[value] = write.dot }
      again.append(write)
    }

    /// The write named `dot` was made where the key had this value.
    mutating func replace(_ bytes: [UInt8], by dot: Dot) {
      guard let origin = origins[Content(bytes: bytes)] else { return }
      replaced[dot, default: []].formUnion(replaced[origin] ?? [])
      replaced[dot]?.insert(origin)
    }

    /// Did the write named `dot` replace this value?
    fileprivate func has(_ dot: Dot, replaced write: Write) -> Bool {
      guard let bytes = write.content.bytes, let origin = origins[Content(bytes: bytes)] else { return false }
      return replaced[dot]?.contains(origin) ?? false
    }
  }

  /// What was seen of one copy since it was opened.
  struct Seen {
    /// Up to where its journal was read.
    private(set) var position: UInt64 = 0
    /// What it had appended since it was last judged, in the order of its journal.
    private var appended: [Dot] = []
    /// What it covered when it was last judged; nil before that.
    private var covered: Coverage?

    /// The journal shows one entry more.
    mutating func add(_ entry: LogEntry) {
      position = max(position, entry.position)
      appended.append(entry.dot)
    }

    /// It was judged, and covers this.
    fileprivate mutating func judged(_ coverage: Coverage) {
      (appended, covered) = ([], coverage)
    }

    /// Did the copy know this write when it appended `own`? It may have come with what was seen at once, but later.
    fileprivate func knew(_ dot: Dot, before own: Dot, in coverage: Coverage) -> Bool {
      if covered?.has(dot) ?? false { return true }
      guard let arrival = appended.firstIndex(of: dot) else { return covered == nil && coverage.has(dot) }
      return arrival < appended.firstIndex(of: own) ?? appended.endIndex
    }
  }

  /// Judges what this copy has issued again since it was looked at last: nothing that it knew to be over.
  mutating func judgeReturns(to store: Store, _ name: String, at time: UInt64, _ seen: inout Seen) throws {
    let coverage = Coverage(try store.versionVector())
    defer { seen.judged(coverage) }
    guard !past.again.isEmpty else { return }
    let actor = try store.actor
    let own = past.again.filter { $0.dot.actor == actor }
    past.again.removeAll { $0.dot.actor == actor }
    // A machine that was put back may know of its own later writes as of another's.
    guard !own.isEmpty, !hasDoubts else { return }
    let limit = (time + Content.drift) << 16
    for write in own {
      // What waits for its time beats it then, or is given up with what had replaced it.
      let over = (byKey[write.key] ?? []).filter {
        $0.dot != write.dot && $0.stamp <= limit && past.has($0.dot, replaced: write)
          && seen.knew($0.dot, before: write.dot, in: coverage)
      }
      guard let greatest = over.last else { continue }
      // Another copy that knew of nothing greater may have made it a new write before, and that one wins by its stamp.
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

extension Model {
  /// A relay: a bucket or directory that runs no code. Each incarnation of a copy writes one stream of
  /// entries, and checkpoints; no writer waits for another (rules L1 to L12).
  struct Relay {
    /// How the copies of a history exchange records.
    enum Use: String, CaseIterable {
      /// By sessions only.
      case none
      /// By sessions and through the relay; at the end by sessions.
      case mixed
      /// By sessions and through the relay; at the end through the relay only.
      case ending
      /// Through the relay only.
      case alone
    }

    /// Names an entry, and the entries before it in its stream.
    struct EntryID: Equatable {
      let stream: Int
      /// Entries are numbered from 1; 0 stands for none.
      let number: Int
      /// The mark of the round; each entry names the mark of the one before it.
      let mark: Int
    }

    /// A round without a receiver; as a checkpoint, a full state.
    struct Entry {
      let id: EntryID
      /// The publisher's durable state.
      let snapshot: State
      let records: [Record]
      /// The entries that the publisher had read. A checkpoint stands for all of them and its own entry.
      let deps: [EntryID]
      /// The publisher holds only some of the keys.
      let isNarrow: Bool
      /// The publisher's wall clock.
      let wall: Int

      /// What the close of a complete reader covers.
      var closing: Vector {
        guard isNarrow else { return snapshot.vector }
        var own = Vector()
        own[snapshot.actor] = snapshot.sequence
        return own
      }

      func dep(on stream: Int) -> Int { deps.first { $0.stream == stream }?.number ?? 0 }
    }

    struct Stream {
      /// Collected entries are nil.
      var entries: [Entry?] = []
      /// Marks of all entries, collected or not.
      var marks: [Int] = []
    }

    /// By number, from 1.
    private(set) var streams: [Stream] = []
    /// The oldest first.
    var checkpoints: [Entry] = []
    var use = Use.none
    /// Whether it has ever lost entries.
    var hasLostEntries = false
    /// Whether it changed since a newcomer last read it.
    var isUnread = false

    mutating func addStream() -> Int {
      streams.append(Stream())
      return streams.count
    }

    /// The number of entries ever created in a stream, and not lost.
    func length(_ stream: Int) -> Int { streams[stream - 1].entries.count }

    /// Nil if it is not there yet, or was collected.
    func entry(_ stream: Int, _ number: Int) -> Entry? {
      let entries = streams[stream - 1].entries
      return entries.indices.contains(number - 1) ? entries[number - 1] : nil
    }

    /// Appends an entry; overwrites what has its number or a later one.
    mutating func create(_ entry: Entry) {
      let index = entry.id.stream - 1
      let first = min(entry.id.number - 1, streams[index].entries.count)
      streams[index].entries.replaceSubrange(first..., with: [entry])
      streams[index].marks.replaceSubrange(first..., with: [entry.id.mark])
      isUnread = true
    }

    /// Whether a stream no longer has that entry: it is shorter, or (if `chains`) has another mark there.
    func lacks(_ id: EntryID, chains: Bool) -> Bool {
      guard id.number > 0 else { return false }
      let marks = streams[id.stream - 1].marks
      return marks.count < id.number || chains && marks[id.number - 1] != id.mark
    }

    /// Whether an entry or a checkpoint has the record.
    func holds(_ record: Record) -> Bool {
      checkpoints.contains { $0.records.contains(record) }
        || streams.contains { $0.entries.contains { $0?.records.contains(record) ?? false } }
    }

    /// Collects the first entries of a stream.
    mutating func collect(_ stream: Int, upTo number: Int) {
      for index in 0..<max(0, number) { streams[stream - 1].entries[index] = nil }
    }

    /// Put back: the last entries of a stream are gone, with the checkpoints that stand on them.
    mutating func lose(_ stream: Int, _ count: Int) {
      streams[stream - 1].entries.removeLast(min(count, length(stream)))
      streams[stream - 1].marks = Array(streams[stream - 1].marks.prefix(length(stream)))
      let left = length(stream)
      checkpoints.removeAll { $0.dep(on: stream) > left }
      hasLostEntries = true
    }

    /// Put back to what it was. Streams begun since have no entries.
    mutating func putBack(to earlier: Relay) {
      let later = streams.dropFirst(earlier.streams.count)
      streams = earlier.streams + later.map { _ in Stream() }
      checkpoints = earlier.checkpoints
      (hasLostEntries, isUnread) = (true, true)
    }
  }

  /// What a copy knows of the relay: a part of its state, so a power loss or a restore takes it back as well.
  struct RelayState: Equatable {
    /// The last entry read of a stream.
    struct Seen: Equatable {
      let id: Relay.EntryID
      /// What its close has merged.
      var merged: Vector
    }

    /// A close of a selective publisher that could not be merged yet.
    struct Owed: Equatable {
      let id: Relay.EntryID
      let actor: Actor
      let sequence: Int
      /// All else that the publisher covered or had purged.
      let rest: Vector
      let floor: Vector
    }

    /// Its own stream.
    var stream: Int?
    /// The last entry that it published, by number and mark.
    var number = 0
    var mark = 0
    /// The journal's position at that entry, and the vector that closed it.
    var position = 0
    var closing = Vector()
    /// The mark of an entry that may be in the relay already.
    var pending: Int?
    /// By stream.
    private(set) var seen: [Seen] = []
    var owed: [Owed] = []
    /// Streams begun by the present actor.
    var own: [Int] = []
    /// A digest differed.
    var hasAlarm = false

    func seen(_ stream: Int) -> Seen? { seen.first { $0.id.stream == stream } }

    /// The number of the last entry read of a stream, or written.
    func progress(_ stream: Int) -> Int {
      stream == self.stream ? number : seen(stream)?.id.number ?? 0
    }

    mutating func see(_ id: Relay.EntryID, merged: Vector) {
      if let index = seen.firstIndex(where: { $0.id.stream >= id.stream }) {
        let range = index..<(seen[index].id.stream == id.stream ? index + 1 : index)
        seen.replaceSubrange(range, with: [Seen(id: id, merged: merged)])
      } else {
        seen.append(Seen(id: id, merged: merged))
      }
    }

    mutating func forgetSeen() { seen = [] }

    /// The vector covered by those who have read what this copy has read.
    var covered: Vector {
      var union = closing
      for one in seen { union.merge(one.merged) }
      return union
    }

    mutating func published(_ id: Relay.EntryID, at position: Int, closing: Vector) {
      (number, mark, self.position, self.closing, pending) = (id.number, id.mark, position, closing, nil)
    }

    /// The next entry begins a stream, from position 0.
    private mutating func endStream() {
      (stream, number, mark, position, closing, pending) = (nil, 0, 0, 0, Vector(), nil)
    }

    /// L8: a new actor begins a new stream; the former one is read like any other.
    mutating func becomeAnother() {
      if let stream { see(Relay.EntryID(stream: stream, number: number, mark: mark), merged: closing) }
      endStream()
      own = []
    }

    /// L6: the relay lost entries.
    mutating func startOver() {
      endStream()
      seen = []
    }
  }
}

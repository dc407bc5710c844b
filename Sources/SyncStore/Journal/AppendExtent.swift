/// What the records of one append take up, wherever they come to lie.
struct AppendExtent: Sendable {
  /// All whose numbers the records use.
  private(set) var actors: Set<ActorID> = []
  private var last: ActorID?
  private var records = 0
  private var count = 0

  init() {}

  init(_ entries: [JournalEntry]) {
    for entry in entries { add(entry) }
  }

  /// The most bytes that they can take up, with the definitions of their actors.
  var bytes: Int { records + actors.count * Self.definitions }

  /// The bytes that come on top where they are sealed: of each record and definition, and of the writer's epoch.
  var sealing: Int {
    (count + 2 * actors.count) * SealedLayout.overhead + SealedLayout.definitions
  }

  /// Adds one; returns the most bytes that it can take up by itself.
  @discardableResult
  mutating func add(_ entry: JournalEntry) -> Int {
    switch entry {
    case .write(let record, _), .loser(let record): return add(record)
    case .local(let key, let value):
      return add(length: RecordLayout.fixedLength + key.count + (value?.count ?? 0))
    case .checkpoint: return add(length: RecordLayout.fixedLength)
    case .purge(let purge):
      actors.insert(purge.version.dot.actor)
      return add(length: RecordLayout.fixedLength + purge.key.count) + Self.definitions
    }
  }

  /// Adds a write; returns the most bytes that it can take up by itself.
  mutating func add(_ record: Record) -> Int {
    let value =
      switch record.content {
      case .tombstone: 0
      case .inline(let value): value.count
      case .blob(let blob): RecordLayout.blobLength + blob.metadata.count
      }
    let length = add(length: Self.length(open: record.open.count, key: record.key.count, value: value))
    if record.dot.actor != last { actors.insert(record.dot.actor) }
    last = record.dot.actor
    guard record.base != nil || !record.open.isEmpty else { return length + Self.definitions }
    var own: Set = [record.dot.actor]
    if let base = record.base { own.insert(base.actor) }
    for dot in record.open { own.insert(dot.actor) }
    actors.formUnion(own)
    return length + own.count * Self.definitions
  }

  /// Adds the records of a batch.
  mutating func add(_ batch: PlainBatch) {
    for entry in batch.entries {
      records += RecordLayout.aligned(Self.length(open: 0, key: entry.key.count, value: entry.value.count))
    }
    count += batch.entries.count
    for actor in batch.used { actors.insert(batch.actors[actor]) }
  }

  /// The most bytes that a write with its value in the journal can take up by itself, if it names nobody but its author.
  static func bytes(key: Int, value: Int) -> Int {
    RecordLayout.aligned(length(open: 0, key: key, value: value))
  }

  private mutating func add(length: Int) -> Int {
    records += RecordLayout.aligned(length)
    count += 1
    return RecordLayout.aligned(length)
  }

  private static func length(open: Int, key: Int, value: Int) -> Int {
    RecordLayout.fixedLength + RecordLayout.dotLength + 8 + 2 + open * RecordLayout.dotLength + key + value
  }

  /// Bytes of both definitions of one actor.
  private static let definitions = 2 * RecordLayout.aligned(RecordLayout.actorDefinitionLength)
}

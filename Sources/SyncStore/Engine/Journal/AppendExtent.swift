/// Upper bound of the bytes that the records of one append take up, wherever they are stored.
struct AppendExtent: Sendable {
  /// All actors whose numbers the records use.
  private(set) var actors: Set<ActorID> = []
  private var last: ActorID?
  private var records = 0
  private var count = 0

  init() {}

  init(_ entries: [JournalEntry]) {
    for entry in entries { add(entry) }
  }

  /// The most bytes that the records can take up, with the definitions of their actors.
  var bytes: Int { records + actors.count * Self.definitions }

  /// Extra bytes if the records are encrypted: for each record and definition, and for the writer's epoch.
  var encryptionBytes: Int {
    (count + 2 * actors.count) * EncryptedRecordLayout.overhead + EncryptedRecordLayout.definitions
  }

  /// Adds an entry.
  mutating func add(_ entry: JournalEntry) {
    switch entry {
    case .write(let record, _), .parked(let record, _), .loser(let record): add(record)
    case .local(let key, let value):
      add(length: RecordLayout.fixedLength + key.count + (value?.count ?? 0))
    case .checkpoint: add(length: RecordLayout.fixedLength)
    case .purge(let purge):
      actors.insert(purge.version.dot.actor)
      add(length: RecordLayout.fixedLength + purge.key.count)
    }
  }

  /// Adds a write.
  mutating func add(_ record: Record) {
    let value =
      switch record.content {
      case .tombstone: 0
      case .inline(let value): value.count
      case .blob(let blob): RecordLayout.blobLength + blob.metadata.count
      }
    add(length: Self.length(open: record.open.count, key: record.key.count, value: value))
    if record.dot.actor != last { actors.insert(record.dot.actor) }
    last = record.dot.actor
    if let base = record.base { actors.insert(base.actor) }
    for dot in record.open { actors.insert(dot.actor) }
  }

  /// Adds the records of a batch.
  mutating func add(_ batch: CompactBatch) {
    for entry in batch.entries {
      records += RecordLayout.aligned(Self.length(open: 0, key: entry.key.count, value: entry.value.count))
    }
    count += batch.entries.count
    for actor in batch.used { actors.insert(batch.actors[actor]) }
  }

  /// The most bytes that a write with an inline value can take up by itself, if it names no actor but its
  /// author.
  static func bytes(key: Int, value: Int) -> Int {
    RecordLayout.aligned(length(open: 0, key: key, value: value))
  }

  private mutating func add(length: Int) {
    records += RecordLayout.aligned(length)
    count += 1
  }

  private static func length(open: Int, key: Int, value: Int) -> Int {
    RecordLayout.fixedLength + RecordLayout.dotLength + 8 + 2 + open * RecordLayout.dotLength + key + value
  }

  /// Bytes of both definitions of one actor.
  static let definitions = 2 * RecordLayout.aligned(RecordLayout.actorDefinitionLength)
}

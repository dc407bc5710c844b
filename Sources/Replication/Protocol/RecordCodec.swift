package import SyncStore

/// The payload of a batch before encryption: records of one round in the sender's order.
///
/// `schemas/wire.md` has the bytes.
///
/// Invariants of what `decode` returns: positions rise and do not pass the end position; the last record ends
/// its transaction; keys, values, open dots and meta-data are within `Limits`; no stamp is the maximum (F51).
package enum RecordCodec {
  /// Records and the position they reach; in a full state also the other writes that the sender holds up to
  /// there.
  package struct Payload: Hashable, Sendable {
    /// The position of the sender's journal that is reached once the records are applied.
    package var position: UInt64
    /// The records.
    package var records: [PositionedRecord]
    /// Writes that the sender holds and the receiver covers: at most `WireLimits.presentDots`, in order.
    package var present: [Dot]

    /// All fields.
    package init(position: UInt64, records: [PositionedRecord], present: [Dot] = []) {
      (self.position, self.records, self.present) = (position, records, present)
    }
  }

  /// The version of the layout, the first byte.
  package static let version: UInt8 = 1

  enum Flag {
    static let content: UInt8 = 0b0000_0011
    static let base: UInt8 = 0b0000_0100
    static let open: UInt8 = 0b0000_1000
    static let deadline: UInt8 = 0b0001_0000
    static let continues: UInt8 = 0b0010_0000
    static let type: UInt8 = 0b0100_0000
    static let unknown: UInt8 = 0b1000_0000
  }

  /// Encodes the payload. The records must satisfy what `decode` checks; those of a journal do.
  package static func encode(_ payload: Payload) -> [UInt8] {
    var encoder = Encoder(capacity: payload.records.reduce(64) { $0 + $1.record.encodedSizeHint })
    for record in payload.records { encoder.write(record) }
    return encoder.finish(position: payload.position, present: payload.present)
  }

  /// Encodes a payload record by record. The records must satisfy what `decode` checks; those of a journal
  /// do.
  package struct Encoder: BatchWriter {
    private var actors = ActorTable()
    private var body: ByteWriter
    private var position: UInt64 = 0
    private var stamp: UInt64 = 0
    /// Number of records written.
    package private(set) var count: UInt64 = 0

    /// Creates an empty encoder; `capacity` is the expected size in bytes.
    package init(capacity: Int) { body = ByteWriter(capacity: capacity) }

    /// Adds a record.
    package mutating func write(_ positioned: PositionedRecord) {
      let record = positioned.record
      var flags: UInt8 =
        switch record.content {
        case .tombstone: 0
        case .inline: 1
        case .blob: 2
        }
      if record.base != nil { flags |= Flag.base }
      if !record.open.isEmpty { flags |= Flag.open }
      if record.deadline != nil { flags |= Flag.deadline }
      if record.continues { flags |= Flag.continues }
      let heading = heading(
        flags: flags, at: positioned.position, author: actors.index(of: record.dot.actor),
        sequence: record.dot.sequence, stamp: record.stamp,
        type: record.type)
      body.write(most: Heading.mostBytes) { heading.write(to: &$0) }
      if let deadline = record.deadline { body.writeVariable(deadline) }
      if let base = record.base { body.write(base, in: &actors) }
      if !record.open.isEmpty {
        body.writeVariable(UInt64(record.open.count))
        for dot in record.open { body.write(dot, in: &actors) }
      }
      body.write(counted: record.key)
      switch record.content {
      case .tombstone: break
      case .inline(let value): body.write(counted: value)
      case .blob(let blob):
        body.write(raw: blob.hash.bytes)
        body.writeVariable(blob.size)
        body.write(counted: blob.metadata)
      }
    }

    /// Adds records in compact form.
    package mutating func write(_ entries: [CompactBatch.Entry], of actors: [ActorID], in bytes: Span<UInt8>)
    {
      for entry in entries {
        var flags: UInt8 = entry.isTombstone ? 0 : 1
        if entry.hasBase { flags |= Flag.base }
        if entry.continues { flags |= Flag.continues }
        let heading = heading(
          flags: flags, at: entry.position, author: self.actors.index(of: actors[entry.author]),
          sequence: entry.sequence, stamp: entry.stamp,
          type: entry.type)
        let base = entry.hasBase ? self.actors.index(of: actors[entry.baseAuthor]) : 0
        let (key, value) = (bytes.extracting(entry.key), bytes.extracting(entry.value))
        // The heading, and five more integers.
        body.write(most: Heading.mostBytes + 50 + key.count + value.count) { output in
          heading.write(to: &output)
          if entry.hasBase {
            output.append(variable: UInt64(base))
            output.append(variable: entry.baseSequence)
          }
          output.append(variable: UInt64(key.count))
          output.append(copying: key)
          guard !entry.isTombstone else { return }
          output.append(variable: UInt64(value.count))
          output.append(copying: value)
        }
      }
    }

    /// The fields at the start of every record, as encoded.
    private struct Heading {
      static let mostBytes = 42

      var flags: UInt8
      var distance: UInt64
      var author: UInt64
      var sequence: UInt64
      var stamp: UInt64
      var type: ValueType

      func write(to output: inout OutputSpan<UInt8>) {
        output.append(type == .bytes ? flags : flags | Flag.type)
        output.append(variable: distance)
        output.append(variable: author)
        output.append(variable: sequence)
        output.append(variable: stamp)
        if type != .bytes { output.append(type.rawValue) }
      }
    }

    /// The heading of the next record.
    private mutating func heading(
      flags: UInt8, at position: UInt64, author: Int, sequence: UInt64, stamp: Stamp,
      type: ValueType
    ) -> Heading {
      let heading = Heading(
        flags: flags, distance: position &- self.position, author: UInt64(author),
        sequence: zigzag(sequence &- actors.lastSequences[author]),
        stamp: zigzag(stamp.rawValue &- self.stamp), type: type)
      (self.position, self.stamp) = (position, stamp.rawValue)
      actors.lastSequences[author] = sequence
      count += 1
      return heading
    }

    /// Returns the payload, which reaches `position` and names other writes held up to there. Call once: the
    /// buffer is handed over.
    package mutating func finish(position: UInt64, present: [Dot]) -> [UInt8] {
      RecordCodec.write(present: present, to: &body, &actors)
      var head = ByteWriter(capacity: 32 + 16 * actors.names.count)
      head.write(RecordCodec.version)
      head.writeVariable(UInt64(actors.names.count))
      for actor in actors.names { head.write(raw: actor.bytes) }
      head.writeVariable(position)
      head.writeVariable(count)
      // Moving within the buffer costs a tenth of allocating another one of that size.
      body.write(atStart: head)
      var all = ByteWriter()
      swap(&all, &body)
      return all.bytes
    }
  }

  /// Runs of consecutive sequences per actor: most of a copy's writes are consecutive.
  fileprivate static func write(present dots: [Dot], to body: inout ByteWriter, _ actors: inout ActorTable) {
    let runs = Self.runs(of: dots)
    body.writeVariable(UInt64(runs.count))
    for (actor, runs) in runs {
      body.writeVariable(UInt64(actors.index(of: actor)))
      body.writeVariable(UInt64(runs.count))
      var end: UInt64 = 0
      for run in runs {
        body.writeVariable(run.lowerBound - end - 1)
        body.writeVariable(run.upperBound - run.lowerBound)
        end = run.upperBound
      }
    }
  }

  private static func runs(of dots: [Dot]) -> [(actor: ActorID, runs: [ClosedRange<UInt64>])] {
    var all: [(actor: ActorID, runs: [ClosedRange<UInt64>])] = []
    for dot in dots {
      if all.last?.actor != dot.actor { all.append((dot.actor, [])) }
      let place = all.count - 1
      if let last = all[place].runs.last, last.upperBound + 1 == dot.sequence {
        all[place].runs[all[place].runs.count - 1] = last.lowerBound...dot.sequence
      } else {
        all[place].runs.append(dot.sequence...dot.sequence)
      }
    }
    return all
  }

  /// Maps small differences of either sign to small unsigned numbers; differences are taken modulo 2^64.
  fileprivate static func zigzag(_ difference: UInt64) -> UInt64 {
    let signed = Int64(bitPattern: difference)
    return UInt64(bitPattern: signed << 1 ^ signed >> 63)
  }
}

/// The actors of a batch in the order of first use, with the last sequence of each in it.
private struct ActorTable {
  private(set) var names: [ActorID] = []
  var lastSequences: [UInt64] = []
  private var indices: [ActorID: Int] = [:]
  private var latest = -1

  mutating func index(of actor: ActorID) -> Int {
    // Most batches are long runs of one author.
    if latest >= 0, names[latest] == actor { return latest }
    if let known = indices[actor] {
      latest = known
      return known
    }
    latest = names.count
    indices[actor] = latest
    names.append(actor)
    lastSequences.append(0)
    return latest
  }
}

extension ByteWriter {
  fileprivate mutating func write(_ dot: Dot, in actors: inout ActorTable) {
    writeVariable(UInt64(actors.index(of: dot.actor)))
    writeVariable(dot.sequence)
  }
}

extension Record {
  /// Approximate encoded size of the record, for reserving capacity.
  fileprivate var encodedSizeHint: Int {
    switch content {
    case .tombstone: 24 + key.count
    case .inline(let value): 28 + key.count + value.count
    case .blob(let blob): 64 + key.count + blob.metadata.count
    }
  }
}

/// What a copy knows of a relay: its own stream there, and how far it has read the streams of the others.
///
/// Kept in the journal: a copy that is put back to an earlier state also knows no more of the relay than it
/// did then.
package struct RelayProgress: Hashable, Sendable {
  /// An entry of a stream, and the mark that tells it from another one of the same number.
  package struct Place: Hashable, Sendable {
    /// Number of the entry in its stream, from 1.
    package var number: UInt64
    /// Its mark.
    package var mark: RoundMark

    /// Both fields.
    package init(number: UInt64, mark: RoundMark) { (self.number, self.mark) = (number, mark) }
  }

  /// The close of an entry whose publisher holds only some keys: it can be merged once everything else that
  /// the publisher covers is covered here (rule L12).
  package struct OwedClose: Hashable, Sendable {
    /// The publisher's actor.
    package var actor: ActorID
    /// What the publisher covered.
    package var vector: VersionVector
    /// The publisher's floor.
    package var floor: VersionVector

    /// All fields.
    package init(actor: ActorID, vector: VersionVector, floor: VersionVector) {
      (self.actor, self.vector, self.floor) = (actor, vector, floor)
    }

    /// What the close adds to what a copy covers; nil as long as something else is missing there.
    package func addition(to covered: VersionVector) -> VersionVector? {
      var rest = vector
      rest[actor] = 0
      guard covered.covers(rest), covered.covers(floor) else { return nil }
      return VersionVector([actor: vector[actor]])
    }
  }

  /// The most closes that may be owed; beyond that, the oldest are forgotten, and a checkpoint is needed.
  package static let maximumOwed = 256
  /// The most superseded marks; beyond that, the oldest are forgotten.
  package static let maximumSuperseded = 32

  /// The own stream; nil before this life of the copy has begun one.
  package var stream: StreamID?
  /// The last entry of the own stream; nil before the first.
  package var last: Place?
  /// The position of the own journal up to which it was published.
  package var position: UInt64 = 0
  /// The mark of the entry that is being published. If the relay has an entry with this mark, it is this
  /// copy's own (rule L2).
  package private(set) var pending: RoundMark?
  /// Marks that were pending for the same number before, oldest first: their entries did not arrive, as far
  /// as is known, and may still come: with a request that was late, or with a relay that is put back.
  package private(set) var superseded: [RoundMark] = []
  /// The union of the vectors of all entries that this copy has read and published: `C` of the rules.
  package var covered = VersionVector()
  /// The last entry read of each stream.
  package var seen: [StreamID: Place] = [:]
  /// Streams begun by this life of the copy: an entry of its actor in any other one means that two copies
  /// live one life.
  package var ownStreams: Set<StreamID> = []
  /// Closes that could not be merged yet, oldest first.
  package var owed: [OwedClose] = []
  /// Whether an entry that was read in part has left records here that the vector does not cover.
  package var isPartial = false
  /// Whether a digest in the relay differed from the own one although both cover the same.
  package var disagrees = false
  /// The version of the bell at which everything that was there had been read.
  package var quietBell = ""

  /// Nothing is known.
  package init() {}

  /// The entry of a stream up to which this copy has read or written; nil if none.
  package func place(in stream: StreamID) -> Place? {
    stream == self.stream ? last : seen[stream]
  }

  /// An entry with this mark is about to be written, under the number after `last`.
  package mutating func begin(_ mark: RoundMark) {
    if let pending { superseded.append(pending) }
    if superseded.count > Self.maximumSuperseded { superseded.removeFirst() }
    pending = mark
  }

  /// Whether an entry under the number after `last` is this copy's own.
  package func isOwn(_ mark: RoundMark) -> Bool { mark == pending || superseded.contains(mark) }

  /// An entry of the own stream is in the relay: the journal is published up to `position`.
  package mutating func publish(_ place: Place, upTo position: UInt64) {
    (last, self.position, pending, superseded) = (place, position, nil, [])
  }

  /// Whether nothing at all is known.
  package var isEmpty: Bool { self == RelayProgress() }

  /// The relay has lost entries: what was seen is forgotten, and a new stream begins at position 0 (rule L6).
  package mutating func startOver() {
    let own = ownStreams
    self = RelayProgress()
    ownStreams = own
  }

  /// The copy has become another actor: its former stream is one like any other, read up to where it had
  /// written (rule L8). With `forgetting`, everything is read again (rule L9).
  package mutating func beginLife(forgetting: Bool) {
    var next = RelayProgress()
    if !forgetting {
      (next.covered, next.seen, next.owed) = (covered, seen, owed)
      if let stream, let last { next.seen[stream] = last }
    }
    self = next
  }

  /// Adds a close that is owed.
  package mutating func owe(_ close: OwedClose) {
    owed.append(close)
    if owed.count > Self.maximumOwed { owed.removeFirst(owed.count - Self.maximumOwed) }
  }

  /// Merges owed closes into `vector` as long as one can be, and drops those. Returns what was added.
  package mutating func settle(into vector: inout VersionVector) -> VersionVector {
    var added = VersionVector()
    var left = owed
    repeat {
      (owed, left) = (left, [])
      for close in owed {
        guard let addition = close.addition(to: vector) else {
          left.append(close)
          continue
        }
        vector.merge(addition)
        added.merge(addition)
      }
    } while left.count < owed.count
    covered.merge(added)
    return added
  }
}

// MARK: Bytes

/// The value of a local record under `StateKey.relay`; schemas/journal.md has the layout.
extension RelayProgress {
  private static let version: UInt8 = 1

  private enum Flag {
    static let stream: UInt8 = 1
    static let last: UInt8 = 2
    static let pending: UInt8 = 4
    static let partial: UInt8 = 8
    static let disagrees: UInt8 = 16
  }

  /// The bytes.
  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 64 + seen.count * 36 + covered.count * 24)
    writer.write(Self.version)
    var flags: UInt8 = 0
    if stream != nil { flags |= Flag.stream }
    if last != nil { flags |= Flag.last }
    if pending != nil { flags |= Flag.pending }
    if isPartial { flags |= Flag.partial }
    if disagrees { flags |= Flag.disagrees }
    writer.write(flags)
    if let stream { writer.write(raw: stream.bytes) }
    if let last { writer.write(last) }
    if let pending { writer.write(raw: pending.bytes) }
    writer.writeVariable(position)
    writer.write(covered)
    writer.write(seen)
    writer.writeVariable(UInt64(ownStreams.count))
    for stream in ownStreams.sorted() { writer.write(raw: stream.bytes) }
    writer.writeVariable(UInt64(owed.count))
    for close in owed {
      writer.write(raw: close.actor.bytes)
      writer.write(close.vector)
      writer.write(close.floor)
    }
    writer.write(text: quietBell)
    if !superseded.isEmpty {
      writer.writeVariable(UInt64(superseded.count))
      for mark in superseded { writer.write(raw: mark.bytes) }
    }
    return writer.bytes
  }

  /// Decodes the bytes. Bytes after the known fields belong to a newer version and are skipped.
  package init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    let version = try reader.read(UInt8.self)
    guard version >= Self.version else { throw DecodingFailure("relay record of version \(version)") }
    let flags = try reader.read(UInt8.self)
    if flags & Flag.stream != 0 { stream = try reader.readIdentifier() }
    if flags & Flag.last != 0 { last = try reader.readPlace() }
    if flags & Flag.pending != 0 { pending = try reader.readIdentifier() }
    (isPartial, disagrees) = (flags & Flag.partial != 0, flags & Flag.disagrees != 0)
    position = try reader.readVariable()
    covered = try reader.readVector()
    seen = try reader.readPlaces()
    for _ in 0..<(try reader.readCount(limit: Limits.actors)) {
      ownStreams.insert(try reader.readIdentifier())
    }
    for _ in 0..<(try reader.readCount(limit: Self.maximumOwed)) {
      owed.append(
        OwedClose(
          actor: try reader.readActor(), vector: try reader.readVector(), floor: try reader.readVector()))
    }
    quietBell = try reader.readText(limit: 255)
    guard reader.remaining > 0 else { return }
    for _ in 0..<(try reader.readCount(limit: Self.maximumSuperseded)) {
      superseded.append(try reader.readIdentifier())
    }
  }
}

extension ByteWriter {
  /// Appends the number and the 16 bytes of the mark.
  package mutating func write(_ place: RelayProgress.Place) {
    writeVariable(place.number)
    write(raw: place.mark.bytes)
  }

  /// Appends the number of streams, and for each of them, in order, its 16 bytes and the place.
  package mutating func write(_ places: [StreamID: RelayProgress.Place]) {
    writeVariable(UInt64(places.count))
    for (stream, place) in places.sorted(by: { $0.key < $1.key }) {
      write(raw: stream.bytes)
      write(place)
    }
  }
}

extension ByteReader {
  /// 16 bytes.
  package mutating func readIdentifier<ID: Identifier128>() throws(DecodingFailure) -> ID {
    guard let name = ID(bytes: try read(raw: 16)) else { throw DecodingFailure("identifier") }
    return name
  }

  /// A place: its number, which is at least 1, and the 16 bytes of its mark.
  package mutating func readPlace() throws(DecodingFailure) -> RelayProgress.Place {
    let number = try readVariable()
    guard number > 0 else { throw DecodingFailure("entry 0 of a stream") }
    return RelayProgress.Place(number: number, mark: try readIdentifier())
  }

  /// Places of streams, in order, at most `RelayProgress.maximumStreams`.
  package mutating func readPlaces() throws(DecodingFailure) -> [StreamID: RelayProgress.Place] {
    var places: [StreamID: RelayProgress.Place] = [:]
    var last: StreamID?
    for _ in 0..<(try readCount(limit: RelayProgress.maximumStreams)) {
      let stream: StreamID = try readIdentifier()
      if let last, stream <= last { throw DecodingFailure("streams out of order") }
      last = stream
      places[stream] = try readPlace()
    }
    return places
  }
}

extension RelayProgress {
  /// The most streams of a relay. Each life of each copy that publishes there begins one.
  package static let maximumStreams = 2 * Limits.actors
}

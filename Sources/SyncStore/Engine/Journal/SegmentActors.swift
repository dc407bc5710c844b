/// The actors that the records of a segment name by number, as defined by the records replayed so far.
/// Protected by the engine's lock.
///
/// Not copyable: the lookups of each get and put use it in place, without retaining its tables.
struct SegmentActors: ~Copyable {
  private struct Definition {
    /// Nil if the definition was lost.
    var actor: ActorID?
    /// 0 if the definition was lost.
    var offset = 0
  }

  /// By the number that they assign.
  private var definitions: [Definition] = []
  /// Actor to number, maintained only where there are many actors.
  private var numbers: [ActorID: UInt16] = [:]
  /// The last lookup: nearly always the same actor.
  private var recent: (actor: ActorID, number: UInt16)?
  /// The definition at the beginning, as read with the header; it counts once it is replayed.
  private var leading: LeadingDefinition?

  /// Up to this many actors are searched linearly.
  private static let fewActors = 16

  /// The actor with this number; nil if its definition was lost.
  @inline(__always)
  func actor(numbered number: UInt16) -> ActorID? {
    Int(number) < definitions.count ? definitions[Int(number)].actor : nil
  }

  /// The number of `actor`; nil if it has none yet.
  mutating func number(of actor: ActorID) -> UInt16? {
    if let recent, recent.actor == actor { return recent.number }
    let found =
      definitions.count > Self.fewActors
      ? numbers[actor] : definitions.lastIndex { $0.actor == actor }.map { UInt16($0) }
    guard let number = found else { return nil }
    recent = (actor, number)
    return number
  }

  /// All actors by number; nil where a definition was lost.
  var all: [ActorID?] { definitions.map(\.actor) }

  /// Offsets of the definitions, in order.
  var definitionOffsets: [Int] { definitions.map(\.offset).filter { $0 > 0 }.sorted() }

  /// The number that the next definition assigns.
  var nextNumber: Int { definitions.count }

  /// Records an actor definition.
  mutating func define(_ actor: ActorID, as number: UInt16, at offset: Int) {
    while definitions.count <= Int(number) { definitions.append(Definition()) }
    if definitions[Int(number)].offset == 0 { definitions[Int(number)].offset = offset }
    definitions[Int(number)].actor = actor
    recent = (actor, number)
    guard definitions.count > Self.fewActors else { return }
    if numbers.isEmpty {
      for (number, defined) in definitions.enumerated() {
        if let actor = defined.actor { numbers[actor] = UInt16(number) }
      }
    }
    numbers[actor] = number
  }

  /// Keeps the definition at the beginning from the bytes read for the header, so that resuming from an index
  /// checkpoint need not fault in that page of every segment.
  mutating func readLeading(in head: [UInt8], salt: UInt64) {
    leading = LeadingDefinition(in: head, salt: salt)
  }

  /// Applies the leading definition if it is the one at `offset`. Returns false if the record itself must be
  /// read.
  mutating func defineLeading(at offset: Int) -> Bool {
    guard let leading, leading.isAt(offset) else { return false }
    define(leading.actor, as: leading.number, at: offset)
    return true
  }
}

/// The actor definition that most segments begin with.
private struct LeadingDefinition {
  let actor: ActorID
  let number: UInt16
  /// True if both copies of the definition are there, as they should be.
  private let isTwice: Bool

  private static let first = SegmentHeader.length
  private static let second = first + RecordLayout.aligned(RecordLayout.actorDefinitionLength)

  /// Nil unless the first record in the bytes at the beginning of a segment is a whole actor definition.
  init?(in head: [UInt8], salt: UInt64) {
    guard let first = Self.definition(at: Self.first, in: head, salt: salt) else { return nil }
    (actor, number) = first
    isTwice = Self.definition(at: Self.second, in: head, salt: salt).map { $0 == first } ?? false
  }

  /// True if the record at `offset` is this definition.
  func isAt(_ offset: Int) -> Bool { offset == Self.first || isTwice && offset == Self.second }

  /// The actor that the record at `start` defines; nil unless it is a whole actor definition.
  private static func definition(
    at start: Int, in bytes: [UInt8], salt: UInt64
  ) -> (actor: ActorID, number: UInt16)? {
    let (key, end) = (start + RecordLayout.fixedLength, start + RecordLayout.actorDefinitionLength)
    guard bytes.count >= end, bytes.recordLength(at: start) == end - start else { return nil }
    let (kinds, (number, keyLength)) = (bytes.recordKinds(at: start), bytes.recordActorAndKey(at: start))
    guard kinds.isOf(.actor), kinds.flags == [], keyLength == end - key,
      case let body = bytes.span.extracting(start + RecordLayout.length..<end),
      UInt32(truncatingIfNeeded: XXH3.hash64(body, seed: salt &+ UInt64(start)))
        == bytes.recordChecksum(at: start),
      let actor = ActorID(bytes: bytes[key..<end])
    else { return nil }
    return (actor, number)
  }
}

/// The short way of ordinary writes: what a view keeps for them, and what it takes in of them.
extension Engine {
  /// Appends ordinary writes to the segment at the tail; nil if none can be now. Only for the holder of the writers' mutex,
  /// whose view has all that was committed.
  @inline(__always)
  mutating func ordinaryWriter() -> OrdinaryWriter? {
    guard takesShortWay, gaps.isEmpty, !index.ledger.keepsDigest, !isInTrouble, !control.isLost else {
      return nil
    }
    if let writer, writer.segment.number == applied.segment,
      writer.holds(for: state.author.actor, index, journal.table)
    {
      return writer
    }
    return makeOrdinaryWriter()
  }

  @inline(never)
  private mutating func makeOrdinaryWriter() -> OrdinaryWriter? {
    guard let actor = state.author.actor, let segment = journal.segment(applied.segment) else { return nil }
    writer = OrdinaryWriter(segment, of: actor, index, journal.table)
    return writer
  }

  /// Up to where the segment is known durable, as its records say it; 0 if that is not known of it.
  @inline(__always)
  mutating func durableOffset(in segment: Segment) -> Int {
    let durable = Location(packed: control.durable)
    return durable.segment == segment.number ? durable.offset : 0
  }

  /// Takes in an ordinary write that was stored at `bytes` of the segment at the tail.
  @inline(__always)
  mutating func enter(
    _ hash: UInt64, _ bytes: Range<Int>, replacing held: OrdinaryWriter.Held, _ writer: OrdinaryWriter
  ) {
    do throws(StoreError) {
      deadBytes += try writer.enter(hash, bytes, replacing: held)
    } catch {
      index.failure = error
    }
    lastPlace = writer.place(at: bytes.lowerBound)
    applied = Location(segment: writer.segment.number, offset: bytes.upperBound)
    finishEntering()
  }

  /// The same for several at once, of which each ends where `ends` says.
  mutating func enter(
    _ writes: [PostponedWrite], from start: Int, _ ends: [Int], replacing held: [OrdinaryWriter.Held],
    _ writer: OrdinaryWriter
  ) {
    // Whoever reads a part of these from the index sees that there may be more.
    beginEntering(from: applied)
    var offset = start
    do throws(StoreError) {
      for (index, write) in writes.enumerated() {
        var held = held[index]
        if let previous = write.previous {
          let earlier = previous - Composer.firstPostponed
          held = writer.own(writes[earlier], at: (earlier == 0 ? start : ends[earlier - 1])..<ends[earlier])
        }
        deadBytes += try writer.enter(write.hash, offset..<ends[index], replacing: held)
        lastPlace = writer.place(at: offset)
        offset = ends[index]
      }
    } catch {
      index.failure = error
    }
    applied = Location(segment: writer.segment.number, offset: ends.last ?? start)
    finishEntering()
  }
}

internal import SyncStore

/// A session in which parts of a large value can be asked for.
protocol PartGiver: AnyObject {
  /// Asks for parts of a blob. What becomes of them is told later, or before this returns.
  func want(_ parts: BlobPartsWanted)
  /// How far it is with what is asked of it, as a number that only means something beside an earlier one: while nothing comes, it
  /// stays the same. Nil while it is this side that reads nothing.
  var transferProgress: Int? { get }
}

extension SessionDriver: PartGiver {
  var transferProgress: Int? { link.isPaused ? nil : figures.transferProgress }
}

/// Does what was asked of a member still come? One whose disk hangs answers pings all the same. A value: it is told of the time that
/// passes, and how far the session is.
///
/// It counts what comes for anybody: a member gives one value after the other.
struct StallWatch {
  /// Milliseconds between two ticks.
  static let tickMilliseconds = 15_000
  /// Ticks without progress, behind the one that found none since the question or since the last progress.
  static let mostTicks = 4

  private var last: Int?
  private var ticks = 0

  /// A tick. True once nothing has come for `mostTicks` of them.
  mutating func tick(_ progress: Int?) -> Bool {
    guard let progress, progress == last else {
      (last, ticks) = (progress, 0)
      return false
    }
    ticks += 1
    return ticks >= Self.mostTicks
  }
}

/// Fetches one large value from several members at once: each gives a part after the other, whoever is faster gives more. Belongs to
/// its loop's thread.
///
/// Invariants: the value grows on the disk from its start, so that what broke off goes on there; at most `aheadBytes` that came
/// before their turn wait in memory; a part that a member did not give, or not in time, or not as it was asked for, goes to another one;
/// the hash of the whole decides, and if it does not match the members are asked one by one.
final class BlobSwarm {
  /// Values of fewer bytes come from one member.
  static let leastBytes: UInt64 = 8 << 20
  /// Bytes of a part.
  static let partBytes: UInt64 = 4 << 20
  /// Bytes beyond what is stored that are asked for.
  static let aheadBytes: UInt64 = 32 << 20

  /// Called when more is stored: how many bytes are.
  var onProgress: (UInt64) -> Void = { _ in }
  /// Called once: is it here now? If not, it can go on from what is.
  var onEnd: (Bool) -> Void = { _ in }

  private struct Member {
    let driver: any PartGiver
    /// What it was asked for, and has not given.
    var part: BlobPart?
    /// Does that come?
    var watch = StallWatch()
  }

  private let blob: BlobReference
  private let context: NodeContext
  private let loop: EventLoop
  private var members: [DeviceID: Member] = [:]
  private var stored: UInt64 = 0
  /// From here on nothing was asked for yet; but for what came back.
  private var next: UInt64 = 0
  private var returned: [BlobPart] = []
  private var waiting: [UInt64: [UInt8]] = [:]
  private var gone: Set<DeviceID> = []
  private var hasBegun = false
  private var isStoring = false
  private var isOver = false

  init(blob: BlobReference, context: NodeContext, loop: EventLoop) {
    (self.blob, self.context, self.loop) = (blob, context, loop)
  }

  /// A member takes part, unless it does or did.
  func join(_ device: DeviceID, driver: any PartGiver) {
    guard members[device] == nil, !gone.contains(device) else { return }
    members[device] = Member(driver: driver)
    if hasBegun { ask() }
  }

  /// Does it ask this session?
  func uses(_ driver: SessionDriver) -> Bool { members.values.contains { $0.driver === driver } }

  /// Begins behind what is here already.
  func start() {
    work { context, blob throws(StoreError) in
      try SessionStore.need(blob, in: context.store)?.offset
    } then: { this, offset in
      guard let offset else { return this.end(isHere: true) }
      (this.stored, this.next, this.hasBegun) = (offset, offset, true)
      this.ask()
    }
  }

  /// Gives each member that rests the next part.
  private func ask() {
    for device in Array(members.keys) {
      // Who cannot give it says so at once: then what is behind was asked from within.
      guard !isOver, let member = members[device], member.part == nil else { continue }
      guard let part = nextPart() else { break }
      members[device]?.part = part
      members[device]?.watch = StallWatch()
      member.driver.want(BlobPartsWanted(hash: blob.hash, size: blob.size, parts: [part]))
    }
    if hasBegun, members.isEmpty, !isStoring { end(isHere: false) }
  }

  private func nextPart() -> BlobPart? {
    if !returned.isEmpty { return returned.removeFirst() }
    guard next < blob.size, next < stored + Self.aheadBytes else { return nil }
    let part = BlobPart(offset: next, count: min(Self.partBytes, blob.size - next))
    next += part.count
    return part
  }

  /// Bytes came of what a member was asked for.
  func arrived(offset: UInt64, bytes: [UInt8], from device: DeviceID) {
    guard !isOver, let part = members[device]?.part else { return }
    guard part.offset == offset, !bytes.isEmpty, UInt64(bytes.count) <= part.count else {
      return lost(device)
    }
    let rest = BlobPart(offset: offset + UInt64(bytes.count), count: part.count - UInt64(bytes.count))
    members[device]?.part = rest.count == 0 ? nil : rest
    waiting[offset] = bytes
    store()
    ask()
  }

  /// A member gives no more of it.
  func lost(_ device: DeviceID) {
    gone.insert(device)
    guard let member = members.removeValue(forKey: device), !isOver else { return }
    if let part = member.part {
      returned.append(part)
      returned.sort { $0.offset < $1.offset }
    }
    ask()
  }

  /// `StallWatch.tickMilliseconds` have passed.
  func tick() {
    for (device, member) in members where member.part != nil {
      if members[device]?.watch.tick(member.driver.transferProgress) == true { lost(device) }
    }
  }

  /// Stores what has its turn.
  private func store() {
    guard !isStoring, !isOver, var bytes = waiting.removeValue(forKey: stored) else { return }
    while bytes.count < Int(Self.partBytes),
      let more = waiting.removeValue(forKey: stored + UInt64(bytes.count))
    {
      bytes += more
    }
    isStoring = true
    let (offset, piece) = (stored, bytes)
    work { context, blob throws(StoreError) in
      try context.store.blobs.append(piece, to: blob.hash, at: offset)
      let held = offset + UInt64(piece.count)
      if held == blob.size { try context.store.blobs.complete(blob, durable: true) }
      return held
    } then: { this, held in
      this.isStoring = false
      this.stored = held
      this.onProgress(held)
      if held == this.blob.size { return this.end(isHere: true) }
      this.store()
      this.ask()
    }
  }

  /// Does the store's work on a worker. What fails, as a whole that does not match its hash does, ends it.
  private func work<Answer: Sendable>(
    _ body: @escaping @Sendable (NodeContext, BlobReference) throws(StoreError) -> Answer,
    then: @escaping (BlobSwarm, Answer) -> Void
  ) {
    let (context, blob, loop) = (context, blob, loop)
    let this = LoopBound(self, to: loop)
    let next = LoopBound(Box(then), to: loop)
    context.workers.later {
      let result = Result { () throws(StoreError) in try body(context, blob) }
      loop.execute {
        guard !this.value.isOver else { return }
        switch result {
        case .success(let answer): next.value.content(this.value, answer)
        case .failure(let error):
          context.log.emit(.warning, "a large value from several members: \(error.message)")
          this.value.end(isHere: false)
        }
      }
    }
  }

  private func end(isHere: Bool) {
    guard !isOver else { return }
    isOver = true
    let tell = onEnd
    (onProgress, onEnd) = ({ _ in }, { _ in })
    tell(isHere)
  }
}

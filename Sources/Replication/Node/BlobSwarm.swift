internal import SyncStore

/// A session that can be asked for parts of a large value.
protocol PartGiver: AnyObject {
  /// Asks for parts of a blob. The outcome is reported later, or before this returns.
  func want(_ parts: BlobPartsWanted)
  /// Progress counter of the session, meaningful only compared with an earlier value: unchanged while nothing
  /// arrives. Nil while this side has paused reading.
  var transferProgress: Int? { get }
}

extension SessionDriver: PartGiver {
  var transferProgress: Int? { link.isPaused ? nil : figures.transferProgress }
}

/// Detects a member that answers pings but sends nothing that was asked for, for instance because its disk
/// hangs. A value: the caller supplies ticks and progress.
///
/// Progress for any request of the session counts, because a member sends one value after another.
struct StallWatch {
  /// Milliseconds between two ticks.
  static let tickMilliseconds = 15_000
  /// Consecutive ticks without progress that make a stall; the first tick after the request or after progress
  /// does not count.
  static let mostTicks = 4

  private var last: Int?
  private var ticks = 0

  /// Records a tick. True once nothing has arrived for `mostTicks` ticks.
  mutating func tick(_ progress: Int?) -> Bool {
    guard let progress, progress == last else {
      (last, ticks) = (progress, 0)
      return false
    }
    ticks += 1
    return ticks >= Self.mostTicks
  }
}

/// Fetches one large value from several members at once: each is asked for one part at a time, so faster
/// members send more. Confined to its loop's thread.
///
/// Invariants: the value grows on disk from its start, so that an interrupted transfer resumes there; at most
/// `outOfOrderBytes` wait in memory for earlier ones; a part that a member did not send, sent late or sent
/// with other bounds goes to another member; the hash of the whole decides, and on a mismatch the members are
/// asked one by one.
final class BlobSwarm {
  /// Smaller values come from one member.
  static let leastBytes: UInt64 = 8 << 20
  /// Bytes of a part.
  static let partBytes: UInt64 = 4 << 20
  /// How far past the stored bytes parts are requested.
  static let outOfOrderBytes: UInt64 = 32 << 20

  /// Called with the number of stored bytes when it grows.
  var onProgress: (UInt64) -> Void = { _ in }
  /// Called once: true if the value is here now; if not, a later fetch resumes after the stored bytes.
  var onEnd: (Bool) -> Void = { _ in }

  private struct Member {
    let driver: any PartGiver
    /// The requested part that has not arrived yet.
    var part: BlobPart?
    /// Detects that the member has stalled.
    var watch = StallWatch()
  }

  private let blob: BlobReference
  private let context: NodeContext
  private let loop: EventLoop
  private var members: [DeviceID: Member] = [:]
  private var stored: UInt64 = 0
  /// First byte that was not requested yet, apart from the parts in `returned`.
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

  /// Adds a member, unless it takes part or was lost.
  func join(_ device: DeviceID, driver: any PartGiver) {
    guard members[device] == nil, !gone.contains(device) else { return }
    members[device] = Member(driver: driver)
    if hasBegun { ask() }
  }

  /// Whether the swarm uses this session.
  func uses(_ driver: SessionDriver) -> Bool { members.values.contains { $0.driver === driver } }

  /// Starts after the bytes that are stored already.
  func start() {
    work { context, blob throws(StoreError) in
      try SessionStore.need(blob, in: context.store)?.offset
    } then: { this, offset in
      guard let offset else { return this.end(isHere: true) }
      (this.stored, this.next, this.hasBegun) = (offset, offset, true)
      this.ask()
    }
  }

  /// Assigns the next part to each idle member.
  private func ask() {
    for device in Array(members.keys) {
      // A member that cannot send the part may report it before `want` returns; `lost` has then called `ask`
      // re-entrantly.
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
    guard next < blob.size, next < stored + Self.outOfOrderBytes else { return nil }
    let part = BlobPart(offset: next, count: min(Self.partBytes, blob.size - next))
    next += part.count
    return part
  }

  /// Bytes of a requested part have arrived.
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

  /// Removes a member; its part goes to another one.
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

  /// Appends the contiguous bytes that have arrived.
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

  /// Runs store work on a worker. An error, for instance a hash mismatch of the whole value, ends the swarm.
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

import SyncStore

/// State of an unsynced page after a power loss.
package enum PageFate: Sendable, Equatable {
  /// The new content reached the disk.
  case survives
  /// The disk has the content of the last sync.
  case lost
  /// Only some of its eight 512-byte sectors reached the disk: bit n of the mask is sector n.
  case torn(sectors: UInt8)
}

/// A file, directory or planted object of the simulated storage. Accessed only with the storage's lock held.
final class SimulatedNode {
  static let page = SimulatedMemory.pageBytes
  static let sector = 512
  /// Capacity of a mapped file: mapped memory cannot move.
  static let mappedCapacity = 64 << 20
  /// Capacity of a file that is not mapped.
  private static let greatestSize = 1 << 30

  let kind: FileStatus.Kind
  let inode: UInt64
  var links = 0
  var owner = SystemCall.userID

  // A file: the kernel's content, and the disk's content.
  private(set) var live: SimulatedMemory
  private(set) var durable: SimulatedMemory
  var size = 0
  private(set) var durableSize = 0
  /// Allocated bytes, in whole pages.
  var allocated = 0
  private var dirty: Set<Int> = []
  private var mapped = false
  private var mappedForWriting = false
  /// Pages whose writeback failed: the kernel treats them as clean until they are written again.
  private var abandoned: [Int: [UInt8]] = [:]
  /// Whether a writeback failure has not been reported by a sync yet.
  private var hasFailedWriteBack = false
  /// Chooses the pages that reach the disk before a sync, differently each time.
  private var writeBacks: UInt64 = 0
  var locks: [Int: [UInt64: LockKind]] = [:]
  /// Attributes held by the kernel only, not by the disk.
  var isMarked = false

  // A directory.
  var entries: StringDictionary<SimulatedNode> = [:]
  var durableEntries: StringDictionary<SimulatedNode> = [:]

  init(_ kind: FileStatus.Kind, inode: UInt64) {
    self.kind = kind
    self.inode = inode
    let capacity = kind == .file ? Self.mappedCapacity : Self.page
    live = SimulatedMemory(capacity: capacity)
    durable = SimulatedMemory(capacity: capacity)
  }

  /// A copy as made by a copying tool: same bytes, all durable.
  init(copyOf other: SimulatedNode, inode: UInt64) {
    kind = other.kind
    self.inode = inode
    live = SimulatedMemory(capacity: other.live.capacity)
    durable = SimulatedMemory(capacity: other.live.capacity)
    (size, durableSize, allocated) = (other.size, other.size, other.allocated)
    live.copy(0..<size, from: other.live)
    durable.copy(0..<size, from: other.live)
  }

  /// The file on the disk of a cloned machine: both images, same inode. No process has it open.
  init(imageOf other: SimulatedNode) {
    (kind, inode, links) = (other.kind, other.inode, other.links)
    live = SimulatedMemory(capacity: other.live.capacity)
    durable = SimulatedMemory(capacity: other.durable.capacity)
    (size, durableSize, allocated) = (other.size, other.durableSize, other.allocated)
    (dirty, abandoned, isMarked) = (Set(other.changedPages()), other.abandoned, other.isMarked)
    guard kind == .file else { return }
    let end = SimulatedMemory.rounded(max(size, durableSize))
    live.copy(0..<min(end, live.capacity), from: other.live)
    durable.copy(0..<min(end, durable.capacity), from: other.durable)
  }

  func read(_ count: Int, at offset: Int) -> [UInt8] {
    let end = min(size, offset + count)
    return offset < end ? live.read(offset..<end) : []
  }

  /// Whether those are its bytes, in the kernel and on the disk.
  func holds(_ bytes: [UInt8]) -> Bool {
    size == bytes.count && durableSize == size && live.holds(bytes) && durable.holds(bytes)
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) {
    guard !bytes.isEmpty else { return }
    let end = offset + bytes.count
    reserve(end)
    live.write(bytes, at: offset)
    size = max(size, end)
    touch(offset..<end)
  }

  func resize(to newSize: Int) {
    reserve(newSize)
    if newSize < size {
      live.clear(newSize..<SimulatedMemory.rounded(size))
      touch(newSize..<SimulatedMemory.rounded(size))
    }
    size = newSize
  }

  func map(_ range: Range<Int>, writable: Bool) -> Mapping {
    mapped = true
    if writable { mappedForWriting = true }
    return live.mapping(range)
  }

  /// Copies the dirty pages that overlap `bytes` to the durable image.
  func sync(within bytes: Range<Int> = 0..<Int.max) {
    for page in changedPages() {
      let range = page * Self.page..<(page + 1) * Self.page
      guard range.overlaps(bytes) else { continue }
      if let failed = abandoned[page], failed == live.read(range) { continue }
      abandoned[page] = nil
      durable.copy(range, from: live)
    }
    durableSize = size
    dirty = dirty.filter { !(($0 * Self.page)..<(($0 + 1) * Self.page)).overlaps(bytes) }
  }

  /// Writes about half of the dirty pages that overlap `bytes` to the disk: callers must not rely on which.
  func writeBack(within bytes: Range<Int>) {
    writeBacks += 1
    var random = SplitMix64(seed: inode << 32 | writeBacks)
    for page in changedPages() where random.chance(50) {
      let range = page * Self.page..<(page + 1) * Self.page
      guard range.overlaps(bytes), abandoned[page] != live.read(range) else { continue }
      durable.copy(range, from: live)
    }
  }

  /// A failing `startWriteback`: the next sync reports it.
  func failWriteBack() {
    hasFailedWriteBack = true
    failSync()
  }

  /// Returns whether a failure must be reported, and clears it.
  func takeWriteBackFailure() -> Bool {
    defer { hasFailedWriteBack = false }
    return hasFailedWriteBack
  }

  /// A failed writeback: nothing reached the disk, and the pages count as clean.
  func failSync() {
    for page in changedPages() { abandoned[page] = live.read(page * Self.page..<(page + 1) * Self.page) }
  }

  /// Pages that differ between the two images, ascending.
  func changedPages() -> [Int] {
    let count = SimulatedMemory.rounded(max(size, durableSize)) / Self.page
    let candidates = mappedForWriting ? Array(0..<count) : dirty.filter { $0 < count }.sorted()
    return candidates.filter { !live.equals(durable, in: $0 * Self.page..<($0 + 1) * Self.page) }
  }

  /// Power loss: the durable content becomes the live content.
  func losePower(keepingSize: Bool, fate: (Int) -> PageFate) {
    for page in changedPages() {
      let start = page * Self.page
      switch fate(page) {
      case .survives: durable.copy(start..<(start + Self.page), from: live)
      case .lost: break
      case .torn(let sectors):
        for sector in 0..<8 where sectors & (1 << sector) != 0 {
          let offset = start + sector * Self.sector
          durable.copy(offset..<(offset + Self.sector), from: live)
        }
      }
    }
    let end = SimulatedMemory.rounded(max(size, durableSize))
    if keepingSize { durableSize = size }
    durable.clear(durableSize..<max(end, durableSize))
    size = durableSize
    allocated = SimulatedMemory.rounded(size)
    if mapped {
      renew(from: durable)
    } else {
      live.clear(size..<max(end, size))
      live.copy(0..<size, from: durable)
    }
    (dirty, abandoned, locks, entries) = ([], [:], [:], durableEntries)
    (isMarked, hasFailedWriteBack) = (false, false)
  }

  /// All processes die: the kernel's pages stay, but handles of the dead processes no longer reach the file.
  func loseProcesses() {
    locks = [:]
    guard mapped else { return }
    dirty = Set(changedPages())
    renew(from: live)
  }

  func flipBit(at offset: Int, bit: Int) {
    for image in [live, durable] {
      image.write([image.read(offset..<(offset + 1))[0] ^ (1 << UInt8(bit))], at: offset)
    }
  }

  private func renew(from image: SimulatedMemory) {
    let fresh = SimulatedMemory(capacity: live.capacity)
    fresh.copy(0..<size, from: image)
    live = fresh
    (mapped, mappedForWriting) = (false, false)
  }

  /// The largest possible size: beyond it the disk is full.
  var limit: Int { mapped ? live.capacity : Self.greatestSize }

  private func reserve(_ count: Int) {
    precondition(count <= limit, "simulated storage: \(count) bytes are more than a file can have")
    guard count > live.capacity else { return }
    let used = SimulatedMemory.rounded(max(size, durableSize))
    let larger = [live, durable].map { old in
      let new = SimulatedMemory(capacity: max(count, 2 * old.capacity))
      new.copy(0..<used, from: old)
      return new
    }
    (live, durable) = (larger[0], larger[1])
  }

  private func touch(_ range: Range<Int>) {
    guard !range.isEmpty else { return }
    let pages = range.lowerBound / Self.page...(range.upperBound - 1) / Self.page
    for page in pages {
      dirty.insert(page)
      abandoned[page] = nil
    }
  }
}

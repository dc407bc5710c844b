internal import Synchronization

/// State shared by the processes on one store: the writers' mutex, the ends of the journal, the poison flag.
///
/// Invariants: only a process that holds the presence lock alone makes the page anew; only a holder of the
/// mutex (`ControlPage+Mutex.swift`) moves `tail`, `writing` and `position`; `durable` only grows while a
/// process is attached.
///
/// The page is never synced. After a power loss its boot name no longer matches and none of it is trusted;
/// nor is it if the kernel has not kept its file in memory.
package final class ControlPage: Sendable {
  /// Bytes of the file.
  package static let length = 4096
  private static let magic: UInt64 = 0x3147_5043_434E_5953
  /// A whole word, so that one flipped bit neither poisons nor heals.
  private static let poison: UInt64 = 0x9E0D_EC0D_E15B_AD11

  enum Field {
    static let magic = 0
    static let boot = 8
    static let poison = 16
    static let tail = 24
    static let durable = 32
    static let writing = 40
    static let position = 48
    static let recovered = 56
    /// The writers' mutex, on a cache line with nothing else that changes often.
    static let mutex = 64
    /// The last member number given.
    static let members = 72
    /// The kind of the pthread mutex with which an older program keeps other writers out.
    static let olderKind = 80
    static let compactions = 128
    static let installedCompactions = 136
    static let lastDurableSegment = 144
    static let waiters = 152
    static let blobsPut = 160
    static let blobsDurable = 168
    static let name = 176
    /// Format of the writers' mutex: 0 in a page made by an older program.
    static let mutexFormat = 184
    static let home = 192
  }

  let mapping: Mapping
  /// The open file whose locks tell which members live; nil for a page of this process alone.
  let lockFile: (any StorageFile)?

  // The part of this instance in the writers' mutex (`ControlPage+Mutex.swift`).
  /// The number by which the mutex names this instance; 0 before `join`.
  let member = Atomic<UInt64>(0)
  /// The thread that holds the mutex through this instance (`pthread_self`); 0 if none. It equals the number
  /// of the comparing thread only if that thread has stored it.
  let holder = Atomic<UInt>(0)
  /// The holder's cancel state before it acquired the mutex.
  let cancelState = Atomic<Int32>(0)
  /// A child that was forked from this process later is no member.
  let forkGeneration = SystemCall.forkGeneration

  /// A page in a mapping of `length` bytes, whatever they hold. `lockFile`: the mapped file, opened a second
  /// time, for the member locks.
  package init(mapping: Mapping, lockFile: (any StorageFile)? = nil) {
    (self.mapping, self.lockFile) = (mapping, lockFile)
    watchThreads()
  }

  /// State left by the previous life of the page; nil if that was in another boot, or there was none.
  package struct PriorState: Sendable {
    /// Location up to which the journal was known durable.
    package var durable: UInt64
    /// Whether a sync had failed.
    package var poisoned: Bool
    /// Location up to which bytes may have been stored.
    package var writing: UInt64
  }

  /// Reads the state of the previous life, then begins a new one, which inherits the poison. Requires sole
  /// access.
  ///
  /// `isKept`: whether the kernel has kept the file in memory since an earlier life began. Otherwise the disk
  /// may have lost what was not synced, although the boot is the same: then only the poison is trusted.
  package func begin(boot: UInt64, isKept: Bool) -> PriorState? {
    var last: PriorState?
    // Numbers continue across lives: a thread of a closed store may hold on to its own a moment longer.
    let members = self[Field.magic] == Self.magic ? self[Field.members] : 0
    if isKept, self[Field.magic] == Self.magic, self[Field.boot] == boot {
      last = PriorState(durable: durable, poisoned: poisoned, writing: writing)
    }
    // Pages whose sync failed may still be in memory unmarked, and no writer has recovered since the page was
    // made.
    let isPoisoned =
      self[Field.magic] == Self.magic && (self[Field.boot] == boot || self[Field.boot] == ~boot) && poisoned
    if !isPoisoned { clearPoison() }
    if last == nil {
      // Boot and magic are stored last: a crash before that leaves the old state for the next opener.
      mapping.clear(Field.tail..<Self.length)
    } else {
      // `durable`, the poison and `writing` (how far a killed writer may have stored) survive until a writer
      // has recovered: a reader may open first, and a recovering writer may die halfway.
      mapping.clear(Field.tail..<Field.durable)
      mapping.clear(Field.writing + 8..<Field.name)
      mapping.clear(Field.name + 8..<Field.home)
      mapping.clear(Field.home + 8..<Self.length)
    }
    makeMutex(lastMember: members)
    // After a power loss a reader may open first: until a writer has recovered, the page must not claim that
    // its life covers the journal's content.
    self[Field.boot] = last == nil ? ~boot : boot
    self[Field.magic] = Self.magic
    return last
  }

  /// Packed location after the last committed record.
  package var tail: UInt64 {
    get { self[Field.tail] }
    set { self[Field.tail] = newValue }
  }
  /// Packed location up to which everything is durable.
  package var durable: UInt64 { self[Field.durable] }
  /// Packed location up to which the holder of the mutex may have stored bytes.
  package var writing: UInt64 {
    get { self[Field.writing] }
    set { self[Field.writing] = newValue }
  }
  /// Records that bytes up to `location` may be stored from now on. Ordered before those bytes: a process
  /// that sees one of them sees this.
  package func announceWrite(upTo location: UInt64) {
    writing = location
    atomicMemoryFence(ordering: .releasing)
  }
  /// The last position assigned.
  package var position: UInt64 {
    get { self[Field.position] }
    set { self[Field.position] = newValue }
  }
  /// Whether a writer has recovered the journal in this life.
  package var recovered: Bool { self[Field.recovered] != 0 }

  /// Records that a writer has recovered the journal in the present boot.
  package func setRecovered(boot: UInt64) {
    self[Field.boot] = boot
    self[Field.recovered] = 1
  }
  /// Number of compactions in this life.
  package var compactions: UInt64 {
    get { self[Field.compactions] }
    set { self[Field.compactions] = newValue }
  }
  /// Number of compactions that the index has installed: the segments they replaced are gone.
  package var installedCompactions: UInt64 {
    get { self[Field.installedCompactions] }
    set { self[Field.installedCompactions] = newValue }
  }
  /// Fingerprint of the directory's name that is known to be durable (`Storage.nameFingerprint(of:)`); any
  /// other number if none is.
  package var name: UInt64 {
    get { self[Field.name] }
    set { self[Field.name] = newValue }
  }
  /// Place of the identity file (`StoreIdentity.homeWord`) that a writer found or made current since the
  /// kernel has kept this page in memory; 0 if none did.
  package var home: UInt64 {
    get { self[Field.home] }
    set { self[Field.home] = newValue }
  }
  /// `home` if it was recorded in this boot, otherwise nil.
  func home(inBoot boot: UInt64) -> UInt64? { boot != 0 && self[Field.boot] == boot ? home : nil }
  /// The last segment whose header and name are known to be durable; 0 if none is.
  package var lastDurableSegment: UInt64 { self[Field.lastDurableSegment] }
  /// Whether a sync has failed (rule R4). A page that is no longer shared counts as poisoned, too.
  package var poisoned: Bool { (self[Field.poison] ^ Self.poison).nonzeroBitCount < 16 || isLost }

  /// Whether the page is no longer the file's, because the file was truncated or its disk failed.
  @inline(__always)
  package var isLost: Bool { mapping.fault != nil }

  /// Poisons the store: from now on nothing is acknowledged.
  package func setPoisoned() { self[Field.poison] = Self.poison }

  /// Records that everything up to `location` is durable.
  package func raiseDurable(to location: UInt64) { raise(Field.durable, to: location) }

  /// Records that header and name of a segment, and of all before it, are durable.
  package func raiseLastDurableSegment(to number: UInt32) {
    raise(Field.lastDurableSegment, to: UInt64(number))
  }

  /// Number of blobs put in this life that are not durable by themselves.
  package var blobsPut: UInt64 { self[Field.blobsPut] }

  /// Counts one more blob. To be called before the record that refers to it is appended.
  package func recordBlobPut() {
    mapping.withAtomic(Field.blobsPut) { _ = $0.add(1, ordering: .sequentiallyConsistent) }
  }

  /// How many of `blobsPut` are durable.
  package var blobsDurable: UInt64 { self[Field.blobsDurable] }

  /// Records that `count` blobs are durable.
  package func raiseBlobsDurable(to count: UInt64) { raise(Field.blobsDurable, to: count) }

  private func raise(_ field: Int, to value: UInt64) {
    mapping.withAtomic(field) { word in
      var seen = word.load(ordering: .relaxed)
      while seen < value {
        let (exchanged, original) = word.compareExchange(
          expected: seen, desired: value, ordering: .releasing)
        if exchanged { return }
        seen = original
      }
    }
  }

  /// Sets the durable end, also backwards. Requires sole access.
  package func resetDurable(to location: UInt64) { self[Field.durable] = location }

  /// Clears the poison after recovery has salvaged what it could. Only for the recovering process.
  package func clearPoison() { self[Field.poison] = 0 }

  deinit { endWatching() }

  @inline(__always)
  subscript(field: Int) -> UInt64 {
    get { mapping.withAtomic(field) { $0.load(ordering: .acquiring) } }
    set { mapping.withAtomic(field) { $0.store(newValue, ordering: .releasing) } }
  }
}

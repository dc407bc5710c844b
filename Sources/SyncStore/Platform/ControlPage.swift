internal import Synchronization

/// What the processes on one store share: the writers' mutex, the ends of the journal, the poison flag.
///
/// Invariants: the page is made anew by a process that holds the presence lock alone; only a holder of the mutex
/// (`ControlPage+Mutex.swift`) moves
/// `tail`, `writing` and `position`; `durable` only grows while anybody is attached. It is never synced: after a loss of
/// power its boot name no longer fits and nothing of it is believed, nor is it where the kernel has not kept its file in memory.
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
    /// The kind of the pthread mutex by which an older program would keep other writers out.
    static let olderKind = 80
    static let compactions = 128
    static let installedCompactions = 136
    static let lastDurableSegment = 144
    static let waiters = 152
    static let blobsPut = 160
    static let blobsDurable = 168
    static let name = 176
    /// How the writers' mutex works: 0 in a page that an older program has made.
    static let mutexFormat = 184
    static let home = 192
  }

  let mapping: Mapping
  /// The open file whose locks tell which members live; nil for a page of this process alone.
  let lockFile: (any StorageFile)?

  // The part of this instance in the writers' mutex (`ControlPage+Mutex.swift`).
  /// The number by which the mutex names this instance; 0 before `join`.
  let member = Atomic<UInt64>(0)
  /// The thread that has the mutex through this instance (`pthread_self`); 0 if none has. It equals the number of the thread
  /// that looks only if that thread has stored it.
  let holder = Atomic<UInt>(0)
  /// What the holder's cancel state was before it acquired the mutex.
  let cancelState = Atomic<Int32>(0)
  /// A child that was forked from this process later is no member.
  let forkGeneration = SystemCall.forkGeneration

  /// The page in a mapping of `length` bytes, whatever they hold. `lockFile`: the file that is mapped, opened a second time, for
  /// the locks of its members.
  package init(mapping: Mapping, lockFile: (any StorageFile)? = nil) {
    (self.mapping, self.lockFile) = (mapping, lockFile)
    watchThreads()
  }

  /// What the last life of this page knew; nil if it was of another boot, or never.
  package struct PriorState: Sendable {
    /// Up to where the journal was known durable.
    package var durable: UInt64
    /// Had a sync failed?
    package var poisoned: Bool
    /// Up to where bytes may have been stored.
    package var writing: UInt64
  }

  /// Reads what an earlier life left, then begins a new one, which inherits the poison. Only for one who is alone. `isKept`: did
  /// the kernel keep the file in memory since an earlier life began? Otherwise the disk may have lost what was not synced,
  /// though the boot is the same: then only the poison is believed.
  package func begin(boot: UInt64, isKept: Bool) -> PriorState? {
    var last: PriorState?
    // Numbers are not given again: a thread of a store that was closed may hold on to its own a moment longer.
    let members = self[Field.magic] == Self.magic ? self[Field.members] : 0
    if isKept, self[Field.magic] == Self.magic, self[Field.boot] == boot {
      last = PriorState(durable: durable, poisoned: poisoned, writing: writing)
    }
    // Pages whose sync failed may be in memory still, though nothing tells; and nobody has recovered since the page was made.
    let isPoisoned =
      self[Field.magic] == Self.magic && (self[Field.boot] == boot || self[Field.boot] == ~boot) && poisoned
    if !isPoisoned { clearPoison() }
    if last == nil {
      // Boot and magic come last: who dies before that has changed nothing for the next one.
      mapping.clear(Field.tail..<Self.length)
    } else {
      // What was durable, whether a sync had failed and how far a killed writer may have stored outlives everybody until a
      // writer has recovered: a reader may come first, and a writer may die in the middle.
      mapping.clear(Field.tail..<Field.durable)
      mapping.clear(Field.writing + 8..<Field.name)
      mapping.clear(Field.name + 8..<Field.home)
      mapping.clear(Field.home + 8..<Self.length)
    }
    makeMutex(lastMember: members)
    // After a loss of power a reader may come first: until a writer has recovered, nobody may take this for a life in which
    // what is there was put there.
    self[Field.boot] = last == nil ? ~boot : boot
    self[Field.magic] = Self.magic
    return last
  }

  /// The packed location behind the last committed record.
  package var tail: UInt64 {
    get { self[Field.tail] }
    set { self[Field.tail] = newValue }
  }
  /// The packed location up to which all is durable.
  package var durable: UInt64 { self[Field.durable] }
  /// The packed location up to which the present holder of the mutex may have stored bytes.
  package var writing: UInt64 {
    get { self[Field.writing] }
    set { self[Field.writing] = newValue }
  }
  /// Notes that bytes up to `location` may be stored from now on; whoever sees one of them finds this noted.
  package func announceWrite(upTo location: UInt64) {
    writing = location
    atomicMemoryFence(ordering: .releasing)
  }
  /// The last position given.
  package var position: UInt64 {
    get { self[Field.position] }
    set { self[Field.position] = newValue }
  }
  /// Has a writer recovered the journal in this life?
  package var recovered: Bool { self[Field.recovered] != 0 }

  /// A writer has recovered the journal, in the present boot.
  package func setRecovered(boot: UInt64) {
    self[Field.boot] = boot
    self[Field.recovered] = 1
  }
  /// How many compactions took place in this life.
  package var compactions: UInt64 {
    get { self[Field.compactions] }
    set { self[Field.compactions] = newValue }
  }
  /// How many of them the index has taken in: what they replaced is gone.
  package var installedCompactions: UInt64 {
    get { self[Field.installedCompactions] }
    set { self[Field.installedCompactions] = newValue }
  }
  /// The name of the store's directory of which it is known that it is durable (`Storage.word(forNameOf:)`); another number if it is of
  /// none.
  package var name: UInt64 {
    get { self[Field.name] }
    set { self[Field.name] = newValue }
  }
  /// The place of the identity file (`StoreIdentity.homeWord`) that a writer found, or made, to be the present one since the kernel has
  /// kept this page in memory; 0 if none did.
  package var home: UInt64 {
    get { self[Field.home] }
    set { self[Field.home] = newValue }
  }
  /// The same; nil if it was not noted in this boot.
  func home(inBoot boot: UInt64) -> UInt64? { boot != 0 && self[Field.boot] == boot ? home : nil }
  /// The last segment of which it is known that its beginning and its name are durable; 0 if that is known of none.
  package var lastDurableSegment: UInt64 { self[Field.lastDurableSegment] }
  /// Has a sync failed (rule R4)? A page that is not shared any more counts as poisoned, too.
  package var poisoned: Bool { (self[Field.poison] ^ Self.poison).nonzeroBitCount < 16 || isLost }

  /// Is the page not the file's any more, because somebody cut the file short or its disk failed?
  @inline(__always)
  package var isLost: Bool { mapping.fault != nil }

  /// From now on nobody acknowledges anything.
  package func setPoisoned() { self[Field.poison] = Self.poison }

  /// Notes that all up to `location` is durable.
  package func raiseDurable(to location: UInt64) { raise(Field.durable, to: location) }

  /// Notes that the beginning and the name of a segment are durable, and those of all before it.
  package func raiseLastDurableSegment(to number: UInt32) {
    raise(Field.lastDurableSegment, to: UInt64(number))
  }

  /// How many blobs were put in this life that are not durable by themselves.
  package var blobsPut: UInt64 { self[Field.blobsPut] }

  /// Notes one more, before the record that refers to it is appended.
  package func recordBlobPut() {
    mapping.withAtomic(Field.blobsPut) { _ = $0.add(1, ordering: .sequentiallyConsistent) }
  }

  /// How many of them are durable.
  package var blobsDurable: UInt64 { self[Field.blobsDurable] }

  /// Notes that so many are.
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

  /// Sets where the durable part ends, whatever was known before. Only for one who is alone.
  package func resetDurable(to location: UInt64) { self[Field.durable] = location }

  /// What could be saved was saved. Only for the one who recovers.
  package func clearPoison() { self[Field.poison] = 0 }

  deinit { endWatching() }

  @inline(__always)
  subscript(field: Int) -> UInt64 {
    get { mapping.withAtomic(field) { $0.load(ordering: .acquiring) } }
    set { mapping.withAtomic(field) { $0.store(newValue, ordering: .releasing) } }
  }
}

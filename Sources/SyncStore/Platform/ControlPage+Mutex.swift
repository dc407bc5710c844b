private import CLinux
private import Synchronization

/// The writers' mutex: a futex word in the page that names the member holding it, and an OFD lock per member
/// that tells whether it lives (decision 44).
///
/// A robust pthread mutex cannot do this: it names its owner by thread number, and two processes in different
/// PID namespaces (containers) have threads with equal numbers. Each then takes the other's hold for its own
/// and unlocks it, and the kernel marks a mutex as abandoned whose holder lives.
///
/// Invariants:
/// - A member number is given to one instance of `ControlPage` and never again in the life of the page. Its
///   holder has an exclusive OFD lock on byte `firstMemberByte` + number of the control file for as long as
///   that file is open: the kernel releases it at death, in whatever namespace, and not while the process is
///   merely stopped.
/// - A word that names another member is taken over only when that member's lock is gone. An error in
///   querying the lock counts as alive.
/// - Only the thread in `holder` releases the word, and only if the word still names this member.
///
/// This is one of the few files that use `unsafe`: the kernel wakes threads that sleep at an address
/// (futex(2)).
extension ControlPage {
  /// How the mutex was acquired.
  package enum Acquisition: Sendable {
    /// A member had released it.
    case clean
    /// A member died holding it (F13): its incomplete write must be repaired first.
    case ownerDied
    /// Not acquired: this thread already holds it.
    case alreadyHeld
    /// Not acquired: another thread holds it, and the caller did not want to wait.
    case heldByOther
  }

  /// The first byte of the control file used for member locks; the page itself ends before it.
  static let firstMemberByte = 4096
  private static let format: UInt64 = 0x3258_5455_4D53_5257

  /// Set while a thread sleeps on the mutex.
  private static let waitersBit: UInt64 = 1 << 31
  private static let memberMask: UInt64 = (1 << 30) - 1
  /// Stored instead of a member number when the holding thread ended and its process lives.
  private static let abandoned = memberMask
  private static let spins = 200
  /// Milliseconds after which a sleeper checks whether the holder lives: the first interval and the longest.
  /// The kernel wakes no waiter when a holder dies.
  private static let checkedAfter = 10, checkedAtMost = 100

  // MARK: Members

  /// Creates the mutex anew, unlocked. Only while no other process is attached.
  func makeMutex(lastMember: UInt64) {
    self[Field.mutex] = 0
    self[Field.members] = lastMember
    // A program of an older version that opens the store at the same time finds a pthread mutex of no valid
    // kind and fails at its first write, instead of writing concurrently.
    self[Field.olderKind] = 0x7F
    self[Field.mutexFormat] = Self.format
  }

  /// Registers this instance as a member. To be called once, before the first `lock`, while no other process
  /// enters.
  ///
  /// - Throws: `.busy`, if `writes`, when an older program made the page, whose mutex is of another kind.
  package func join(writes: Bool, _ path: String) throws(StoreError) {
    guard self[Field.mutexFormat] == Self.format else {
      guard writes else { return }
      throw StoreError(
        .busy,
        "a process of an older version has the store open, and keeps writers out by other means: end it, or update it",
        path: path)
    }
    var number = self[Field.members] & Self.memberMask
    while true {
      number = number >= Self.abandoned - 1 ? 1 : number + 1
      // After the numbers have wrapped around: skip one that is still in use.
      if self[Field.mutex] & Self.memberMask == number { continue }
      guard let lockFile else { break }
      if try lockFile.lock(byte: Self.firstMemberByte + Int(number), .exclusive, wait: false) { break }
    }
    self[Field.members] = number
    member.store(number, ordering: .relaxed)
  }

  private func isDead(_ number: UInt64) -> Bool {
    // The kernel does not report a lock to the open file that holds it.
    guard number != member.load(ordering: .relaxed), let lockFile else { return false }
    return (try? lockFile.isLocked(byte: Self.firstMemberByte + Int(number))) == false
  }

  // MARK: Acquiring and releasing

  /// Acquires the mutex. A stopped holder is waited for, never robbed (F14); a holder's death is noticed
  /// within `checkedAtMost` milliseconds.
  ///
  /// The thread cannot be cancelled (`pthread_cancel`) until `unlock`. If the page is lost (`isLost`) there
  /// is no mutex to acquire: the result is `.clean` then, and every writer finds the page poisoned before it
  /// goes further.
  ///
  /// - Parameter waits: whether to wait while another thread holds it; otherwise the result is
  ///   `.heldByOther`.
  @inline(__always)
  package func lock(waits: Bool = true) -> Acquisition {
    guard !isLost else { return .clean }
    LockRank.engine.checkMayWait()
    let thread = SystemCall.thread
    guard holder.load(ordering: .relaxed) != thread,
      forkGeneration == SystemCall.forksSeen
    else { return .alreadyHeld }
    let number = member.load(ordering: .relaxed)
    guard acquire(from: 0, as: number) else {
      return lockContended(waits: waits, thread: thread, number: number)
    }
    setHolder(thread)
    return .clean
  }

  @inline(__always)
  private func acquire(from expected: UInt64, as desired: UInt64) -> Bool {
    mapping.withAtomic(Field.mutex) { word in
      word.compareExchange(expected: expected, desired: desired, ordering: .acquiring).exchanged
    }
  }

  @inline(__always)
  private func setHolder(_ thread: UInt) {
    cancelState.store(sync_disable_cancelling(), ordering: .relaxed)
    holder.store(thread, ordering: .relaxed)
    sync_watch_thread_end()
  }

  @inline(never)
  private func lockContended(waits: Bool, thread: UInt, number: UInt64) -> Acquisition {
    precondition(number != 0, "the writers' mutex is used by an instance that is no member")
    var spins = 0
    var milliseconds = Self.checkedAfter
    // A thread that has slept cannot know whether others still do: it leaves the bit set for its `unlock`.
    var flag: UInt64 = 0
    while true {
      guard !isLost else { return .clean }
      let seen = mapping.withAtomic(Field.mutex) { $0.load(ordering: .relaxed) }
      let owner = seen & Self.memberMask
      let mayAsk = spins >= Self.spins || !waits
      if owner == 0 || owner == Self.abandoned || mayAsk && isDead(owner) {
        guard acquire(from: seen, as: number | flag | seen & Self.waitersBit) else { continue }
        setHolder(thread)
        return owner == 0 ? .clean : .ownerDied
      }
      guard waits else { return .heldByOther }
      // Most critical sections last a few microseconds: sleeping and being woken takes ten times as long.
      guard spins >= Self.spins else {
        sync_pause()
        spins += 1
        continue
      }
      flag = Self.waitersBit
      guard seen & Self.waitersBit != 0 || acquire(from: seen, as: seen | Self.waitersBit) else { continue }
      // If the page is lost during the wait no wake-up arrives: the timeout makes this thread check.
      unsafe mapping.withPointer(Field.mutex, to: UInt32.self) {
        unsafe sync_futex_wait($0, UInt32(seen | Self.waitersBit), Int32(milliseconds))
      }
      milliseconds = min(2 * milliseconds, Self.checkedAtMost)
    }
  }

  /// Releases the mutex if this thread acquired it. Does nothing otherwise, as in a forked child.
  @inline(__always)
  package func unlock() {
    guard holder.load(ordering: .relaxed) == SystemCall.thread,
      forkGeneration == SystemCall.forksSeen
    else { return }
    let cancelState = cancelState.load(ordering: .relaxed)
    holder.store(0, ordering: .relaxed)
    release(leaving: 0)
    sync_restore_cancelling(cancelState)
  }

  /// Stores `next` if the word still names this member, and wakes one sleeper. A word that names another
  /// member belongs to a later life of the page.
  @inline(__always)
  private func release(leaving next: UInt64) {
    guard !isLost else { return }
    let number = member.load(ordering: .relaxed)
    let wasAwaited = mapping.withAtomic(Field.mutex) { word in
      if word.compareExchange(expected: number, desired: next, ordering: .releasing).exchanged {
        return false
      }
      return word.compareExchange(
        expected: number | Self.waitersBit, desired: next, ordering: .releasing
      ).exchanged
    }
    guard wasAwaited else { return }
    unsafe mapping.withPointer(Field.mutex, to: UInt32.self) { unsafe sync_futex_wake_one($0) }
  }

  /// Whether a thread of any process sleeps on the mutex. A hint: occasionally true with no sleeper.
  var isContended: Bool {
    mapping.withAtomic(Field.mutex) { $0.load(ordering: .relaxed) } & Self.waitersBit != 0
  }

  // MARK: Thread exit

  /// A page that is known to live. Unretained: a page in its `deinit` waits to be removed from the list.
  @safe private struct KnownPage: @unchecked Sendable {
    private let page: Unmanaged<ControlPage>
    init(_ page: ControlPage) { unsafe self.page = Unmanaged.passUnretained(page) }
    func isEqual(to other: KnownPage) -> Bool { unsafe page.toOpaque() == other.page.toOpaque() }
    func threadEnds() { unsafe page._withUnsafeGuaranteedRef { $0.threadEnds() } }
  }

  /// All pages of this process until their `deinit`, so that a thread that ends can be found in those it
  /// holds.
  private static let pages = LockedField<[KnownPage]>([], rank: .release)

  func watchThreads() {
    let own = KnownPage(self)
    Self.pages.withLock { $0.append(own) }
    sync_on_thread_end { ControlPage.pages.withLock { pages in pages.forEach { $0.threadEnds() } } }
  }

  func endWatching() {
    let own = KnownPage(self)
    Self.pages.withLock { pages in pages.removeAll { $0.isEqual(to: own) } }
  }

  /// A thread that ends holding the mutex (`pthread_exit` in a transaction) abandons it, as a dead process
  /// would.
  private func threadEnds() {
    guard holder.load(ordering: .relaxed) == SystemCall.thread,
      forkGeneration == SystemCall.forksSeen
    else { return }
    holder.store(0, ordering: .relaxed)
    release(leaving: Self.abandoned)
  }
}

/// The stores that this process has open: a directory opened twice is the same instance (F96).
final class StoreRegistry: Sendable {
  static let shared = StoreRegistry()

  private struct Place: Equatable {
    var storage: ObjectIdentifier
    var process: Int
    var fileSystem: UInt64
    var inode: UInt64
  }

  private struct Held {
    let place: Place
    weak var store: Store?
  }

  /// Few, so no table: to have one made is the longest step of a process's first opening.
  private struct Stores {
    var held: [Held] = []
  }

  private let stores = LockedField(Stores())

  /// A directory that is being opened, and the thread that does it.
  private struct Turn {
    let place: Place
    let thread: UInt
  }

  private final class Turns: @unchecked Sendable {
    let monitor = Monitor()
    /// Under its lock.
    var all: [Turn] = []
  }
  private let turns = Turns()

  /// Runs `open` while no other thread opens the directory with this status, so that the second of two finds what the first has
  /// opened. Openings of other directories go on meanwhile: no lock of the process is held while keys are derived, the journal
  /// is recovered or the program is asked (`Configuration.onCorruption`).
  ///
  /// - Throws: `.busy` if this very thread is opening the directory; what `open` throws.
  func inTurn<Result>(
    _ status: FileStatus, _ environment: Environment, _ path: String, _ open: () throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    let turn = Turn(place: Self.place(status, environment), thread: SystemCall.thread)
    let isFree = turns.monitor.withLock {
      while let other = turns.all.first(where: { $0.place == turn.place }) {
        if other.thread == turn.thread { return false }
        turns.monitor.wait()
      }
      turns.all.append(turn)
      return true
    }
    guard isFree else {
      throw StoreError(
        .busy,
        "this thread is opening the store: what it calls meanwhile (Configuration.onCorruption) cannot open it, too",
        path: path)
    }
    defer {
      turns.monitor.withLock {
        turns.all.removeAll { $0.place == turn.place }
        turns.monitor.notifyAll()
      }
    }
    return try open()
  }

  /// Whether both are the same directory.
  static func isSame(_ one: FileStatus, _ other: FileStatus) -> Bool {
    one.inode == other.inode && one.fileSystem == other.fileSystem
  }

  /// The live instance of the directory with this status, if this process has one.
  func find(_ status: FileStatus, _ environment: Environment) -> Store? {
    let place = Self.place(status, environment)
    let generation = SystemCall.forkGeneration
    return stores.withLock { stores in
      // One that was opened before a fork is the parent's, and of no use to the child that is told to open it again.
      stores.held.first { $0.place == place && $0.store?.forkGeneration == generation }?.store
    }
  }

  func remember(_ store: Store, _ status: FileStatus) {
    let place = Self.place(status, store.environment)
    stores.withLock { stores in
      stores.held.removeAll { $0.store == nil || $0.place == place }
      stores.held.append(Held(place: place, store: store))
    }
  }

  func forget(_ store: Store) {
    stores.withLock { $0.held.removeAll { $0.store == nil || $0.store === store } }
  }

  private static func place(_ status: FileStatus, _ environment: Environment) -> Place {
    Place(
      storage: environment.storage.identity, process: environment.process, fileSystem: status.fileSystem,
      inode: status.inode)
  }
}

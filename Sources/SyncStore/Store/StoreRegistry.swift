/// The stores that this process has open: a directory opened twice gives the same instance (F96).
final class StoreRegistry: Sendable {
  static let shared = StoreRegistry()

  private struct DirectoryIdentity: Equatable {
    var storage: ObjectIdentifier
    var process: Int
    var fileSystem: UInt64
    var inode: UInt64
  }

  private struct Entry {
    let place: DirectoryIdentity
    let id: ObjectIdentifier
    let forkGeneration: UInt32
    weak var store: Store?
  }

  /// An array, as there are few: creating a dictionary took the longest step of a process's first opening.
  private struct Stores {
    var held: [Entry] = []
  }

  // **No reference to a store is released under this lock**: the last one would come back for it (`ended`).
  private let stores = LockedField(Stores(), rank: .release)

  /// A directory that is being opened, and the thread that opens it.
  private struct PendingOpen {
    let place: DirectoryIdentity
    let thread: UInt
  }

  private final class PendingOpens: @unchecked Sendable {
    let monitor = Monitor()
    /// Protected by `monitor`.
    var all: [PendingOpen] = []
  }
  private let turns = PendingOpens()

  /// Serializes openings of the same directory, so that the second finds the instance of the first.
  ///
  /// Openings of other directories run concurrently: no process-wide lock is held while keys are derived, the
  /// journal is recovered or the program is called (`Configuration.onCorruption`).
  ///
  /// - Throws: `.busy` if this very thread is already opening the directory; what `open` throws.
  func serialized<Result>(
    _ status: FileStatus, environment: Environment, path: String, _ open: () throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    let turn = PendingOpen(
      place: Self.directoryIdentity(status, environment: environment), thread: SystemCall.thread)
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

  /// The live instance of the directory with this status, if this process has one. Waits for one that no one
  /// refers to any more: another thread, such as one in the background, is releasing it and its lock.
  func find(_ status: FileStatus, environment: Environment) -> Store? {
    let place = Self.directoryIdentity(status, environment: environment)
    let generation = SystemCall.forkGeneration
    for _ in 0..<Self.mostWaits {
      let found = stores.withLock { stores -> Entry? in
        // An instance opened before a fork belongs to the parent, and is useless to the child, which is told
        // to open it again.
        stores.held.first { $0.place == place && $0.forkGeneration == generation }
      }
      guard let found else { return nil }
      if let store = found.store { return store }
      SystemCall.sleep(microseconds: 500)
    }
    return nil
  }

  /// Half a second.
  private static let mostWaits = 1000

  func remember(_ store: Store, status: FileStatus) {
    let entry = Entry(
      place: Self.directoryIdentity(status, environment: store.environment), id: ObjectIdentifier(store.core),
      forkGeneration: store.core.forkGeneration, store: store)
    stores.withLock { stores in
      stores.held.removeAll { $0.place == entry.place }
      stores.held.append(entry)
    }
  }

  /// Called when a store is closed, and when its directory is released without that.
  func ended(_ id: ObjectIdentifier) { stores.withLock { $0.held.removeAll { $0.id == id } } }

  private static func directoryIdentity(_ status: FileStatus, environment: Environment) -> DirectoryIdentity {
    DirectoryIdentity(
      storage: environment.storage.identity, process: environment.process, fileSystem: status.fileSystem,
      inode: status.inode)
  }
}

private import Synchronization

/// A store that is opened when it is first used: what a program keeps instead of a path.
///
/// There is one handle for each directory, however often it is asked for. Thread-safe. Work within `withStore`: then closing,
/// moving, removing and blockading wait for it, and it for them.
///
/// An open store stays with its directory: if that is renamed and another one takes its place, the handle goes on with the one it has
/// open, refuses to move, remove or replace the other, and opens that one after `close()`.
public final class StoreHandle: Sendable {
  /// The directory, absolute.
  public let path: String
  private let environment: Environment
  private let gate = Gate()
  private let state: LockedField<State>
  /// Held while it is being opened, which may take long: who asks for what is known without the store does not wait for that.
  private let opening = LockedField(())
  /// The thread that has that lock; 0 if none has.
  private let openingThread = Atomic<UInt>(0)

  private struct State {
    var store: Store?
    var tag: Int?
    var configuration: Configuration
    var creates: Bool

    /// Has it a store that nobody closed meanwhile?
    var isOpen: Bool {
      guard let store else { return false }
      return (try? store.checkUsable()) != nil
    }
  }

  private struct Held {
    weak var handle: StoreHandle?
  }

  private static let handles = LockedField<StringDictionary<Held>>([:])

  private init(_ path: String, _ configuration: Configuration, creates: Bool, _ environment: Environment) {
    (self.path, self.environment) = (path, environment)
    state = LockedField(State(configuration: configuration, creates: creates))
  }

  // MARK: Handles

  /// The handle of a directory. Nothing is touched yet.
  ///
  /// - Parameters:
  ///   - path: the store's directory; its parent must exist.
  ///   - configuration: how it is opened. Who asks for it again with another one changes it for the next opening: while the store
  ///     is open, that of its opening holds.
  ///   - creates: is a store made there if there is none?
  public static func at(
    _ path: String, configuration: Configuration = Configuration(), creates: Bool = true
  ) -> StoreHandle {
    at(path, configuration: configuration, creates: creates, environment: nil)
  }

  /// `at` with the surroundings given, for tests.
  package static func at(
    _ path: String, configuration: Configuration, creates: Bool, environment: Environment?
  ) -> StoreHandle {
    let absolute = environment == nil ? SystemCall.absolutePath(path) : path
    // Simulated machines and their processes have paths of their own.
    let place = environment.map { "\(ObjectIdentifier($0.storage).hashValue) \($0.process) " } ?? ""
    return handles.withLock { handles in
      handles = handles.filter { $0.value.handle != nil }
      if let handle = handles[place + absolute]?.handle {
        handle.state.withLock { ($0.configuration, $0.creates) = (configuration, creates) }
        return handle
      }
      let real = environment ?? .real(handlesSignals: configuration.handlesSignals)
      let handle = StoreHandle(absolute, configuration, creates: creates, real)
      handles[place + absolute] = Held(handle: handle)
      return handle
    }
  }

  /// The handle of the user's own store: `$SYNC_STORE`, else `$XDG_DATA_HOME/sync-store`, else
  /// `$HOME/.local/share/sync-store`; the one that `sync-cli` uses.
  ///
  /// - Throws: `.notAStore` if none of the variables is set.
  public static func standard(configuration: Configuration = Configuration()) throws(StoreError)
    -> StoreHandle
  {
    at(try StoreRoot.standardPath("SYNC_STORE", "sync-store"), configuration: configuration)
  }

  /// A number by which the program knows it; nil until it is set. All who use the directory see the same.
  public var tag: Int? {
    get { state.withLock { $0.tag } }
    set { state.withLock { $0.tag = newValue } }
  }

  // MARK: Use

  /// Is it open at present?
  public var isOpened: Bool { state.withLock { $0.isOpen } }

  /// Can it be opened, or made? It stays open if so.
  public var canOpen: Bool { (try? withStore { _ in true }) ?? false }

  /// Is it kept from being used?
  public var isBlockaded: Bool { gate.isShut }

  /// Works with the store, which is opened, or made, if it is not open. Waits while it is blockaded or being closed.
  ///
  /// - Throws: what opening throws; `.busy` in the thread that has blockaded it; what `body` throws.
  public func withStore<Result>(_ body: (Store) throws -> Result) throws -> Result {
    guard gate.enter() else { throw own }
    defer { gate.leave() }
    return try body(try opened())
  }

  private func opened() throws(StoreError) -> Store {
    if let store = openStore { return store }
    guard openingThread.load(ordering: .relaxed) != SystemCall.thread else {
      throw StoreError(
        .busy,
        "this thread is opening the store: what it calls meanwhile (Configuration.onCorruption) cannot use it",
        path: path)
    }
    return try opening.withLock { _ throws(StoreError) in
      if let store = openStore { return store }
      openingThread.store(SystemCall.thread, ordering: .relaxed)
      defer { openingThread.store(0, ordering: .relaxed) }
      let store = try Self.open(at: path, state: state.withLock { $0 }, environment: environment)
      state.withLock { $0.store = store }
      return store
    }
  }

  private var openStore: Store? { state.withLock { $0.isOpen ? $0.store : nil } }

  private static func open(
    at path: String, state: State, environment: Environment
  ) throws(StoreError) -> Store {
    guard state.creates else {
      return try Store.open(at: path, configuration: state.configuration, environment: environment)
    }
    return try Store.openOrCreate(at: path, configuration: state.configuration, environment: environment)
  }

  private var own: StoreError {
    StoreError(.busy, "this thread keeps the store from being used: let it be used again first", path: path)
  }

  // MARK: Exclusive possession

  /// Waits until nobody works with the store, and lets nobody begin before `unblockade`. The store stays open.
  ///
  /// It belongs to the thread, which must not wait for itself: not for tasks, which go from thread to thread. They keep others
  /// out by `AsyncStoreHandle.close(_:)`.
  ///
  /// - Throws: `.busy` within `withStore`, and if this thread has blockaded it already.
  @available(*, noasync, message: "it belongs to a thread: keep others out by AsyncStoreHandle.close(_:)")
  public func blockade() throws(StoreError) {
    guard gate.shut() else {
      throw StoreError(.busy, "this thread works with the store: blockade it behind that", path: path)
    }
  }

  /// Lets it be used again; by any thread.
  public func unblockade() { gate.open() }

  /// Waits until nobody works with the store, and closes it: all is durable then. The next use opens it again.
  ///
  /// - Throws: `.busy` within `withStore`; what closing throws.
  public func close() throws(StoreError) {
    try blockade()
    defer { unblockade() }
    try closeStore()
  }

  /// Closes the store, and runs `body` while nobody can open it: no thread, no other process.
  ///
  /// - Throws: `.busy` within `withStore`, and if another process has it open; what closing and what `body` throws.
  public func close<Result>(_ body: () throws -> Result) throws -> Result {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    guard try Store.exists(at: path, environment.storage) else { return try body() }
    let possession = try ExclusiveDirectoryLock(path, environment.storage)
    defer { possession.end() }
    return try body()
  }

  /// Closes the store before something is done to its directory.
  ///
  /// - Throws: `.busy`, and it stays open, if the path leads to another directory by now.
  private func closeInPlace() throws(StoreError) {
    if let store = openStore, try !store.isAtItsPath {
      throw StoreError(
        .busy,
        "the directory of the open store was renamed, removed or replaced, and is not what the path leads to: close this handle first",
        path: path)
    }
    try closeStore()
  }

  private func closeStore() throws(StoreError) {
    let store = state.withLock { state in
      defer { state.store = nil }
      return state.store
    }
    try store?.close()
  }

  // MARK: Files

  /// The paths of all files of the store; none if there is no store.
  ///
  /// - Throws: as `Store.exists(at:)`, and as `Store.files(at:)`.
  public var files: [String] {
    get throws(StoreError) {
      guard try Store.exists(at: path, environment.storage) else { return [] }
      return try Store.files(at: path, environment.storage).map(\.path)
    }
  }

  /// Bytes of all its files; 0 if there is no store.
  ///
  /// - Throws: as `files`.
  public var sizeOfFiles: UInt64 {
    get throws(StoreError) {
      guard try Store.exists(at: path, environment.storage) else { return 0 }
      return try Store.files(at: path, environment.storage).reduce(0) { $0 + UInt64($1.size) }
    }
  }

  /// Closes the store and removes it with all its files. False if there was none. As `Store.remove(at:)`.
  ///
  /// - Throws: `.busy` within `withStore`, and if another process has it open; what closing throws.
  @discardableResult
  public func remove() throws(StoreError) -> Bool {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    return try Store.remove(at: path, environment.storage)
  }

  /// Closes the store and moves it to another directory, whose handle is returned. As `Store.move(from:to:)`.
  ///
  /// - Throws: `.busy` within `withStore`; what closing throws.
  public func move(to newPath: String) throws(StoreError) -> StoreHandle {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    try Store.move(from: path, to: newPath, environment.storage)
    let (configuration, creates) = state.withLock { ($0.configuration, $0.creates) }
    let isReal = environment.storage is DiskStorage
    return Self.at(
      newPath, configuration: configuration, creates: creates, environment: isReal ? nil : environment)
  }

  /// Backs the store up. As `Store.backUp(to:)`.
  ///
  /// - Throws: as `withStore`.
  @discardableResult
  public func backUp(to file: String, replacing: Bool = false) throws -> BackupReport {
    try withStore { try $0.backUp(to: file, replacing: replacing) }
  }

  /// Closes the store and puts one that is restored from a backup in its place. As `Store.restore(from:to:)`.
  ///
  /// - Throws: `.busy` within `withStore`; what closing throws.
  @discardableResult
  public func restore(from file: String, state: Int? = nil) throws(StoreError) -> RestoreReport {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    return try Store.restore(from: file, to: path, state: state, replacing: true, environment: environment)
  }

  // MARK: Memory

  /// Drops memory of the store that is only there for speed.
  public func purgeMemory() { openStore?.purgeMemory() }

  /// Does so for every handle of this process.
  public static func purgeMemory() {
    for handle in handles.withLock({ $0.values.compactMap(\.handle) }) { handle.purgeMemory() }
  }
}

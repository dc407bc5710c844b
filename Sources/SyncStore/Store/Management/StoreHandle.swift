private import Synchronization

/// A handle to a store that is opened at first use: what a program keeps instead of a path.
///
/// There is one handle per directory and process. Thread-safe. Use the store inside `withStore`: closing,
/// moving, removing and blockading then wait for that work, and it for them.
///
/// An open store stays with its directory: if that is renamed and another one takes its place, the handle
/// keeps the one it has open, refuses to move, remove or replace the other, and opens that one after
/// `close()`.
public final class StoreHandle: Sendable {
  /// The absolute path of the directory.
  public let path: String
  let environment: Environment
  private let gate = Gate()
  private let state: LockedField<State>
  /// Held while opening, which may take long; queries that need no open store do not take it.
  private let opening = LockedField((), rank: .handle)
  /// The thread that holds `opening`; 0 if none does.
  private let openingThread = Atomic<UInt>(0)

  private struct State {
    var store: Store?
    var tag: Int?
    var configuration: Configuration
    var creates: Bool

    /// Whether it has a store that was not closed since.
    var isOpen: Bool {
      guard let store else { return false }
      return (try? store.checkUsable()) != nil
    }
  }

  private struct Held {
    weak var handle: StoreHandle?
  }

  private static let handles = LockedField<StringDictionary<Held>>([:], rank: .handleTable)

  private init(_ path: String, _ configuration: Configuration, creates: Bool, _ environment: Environment) {
    (self.path, self.environment) = (path, environment)
    state = LockedField(State(configuration: configuration, creates: creates))
  }

  // MARK: Handles

  /// The handle of a directory. No file is accessed yet.
  ///
  /// - Parameters:
  ///   - path: the store's directory; its parent must exist.
  ///   - configuration: how to open it. A later call with another one changes it for the next opening; an
  ///     open store keeps its own.
  ///   - creates: whether to create a missing store.
  public static func at(
    _ path: String, configuration: Configuration = Configuration(), creates: Bool = true
  ) -> StoreHandle {
    at(path, configuration: configuration, creates: creates, environment: nil)
  }

  /// `at` with a given environment, for tests.
  package static func at(
    _ path: String, configuration: Configuration, creates: Bool, environment: Environment?
  ) -> StoreHandle {
    let absolute = environment == nil ? SystemCall.absolutePath(path) : path
    // Simulated machines and their processes have separate path namespaces.
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

  /// A number chosen by the program; nil until it is set. Shared by all users of this handle.
  public var tag: Int? {
    get { state.withLock { $0.tag } }
    set { state.withLock { $0.tag = newValue } }
  }

  // MARK: Use

  /// Whether the store is open at present.
  public var isOpened: Bool { state.withLock { $0.isOpen } }

  /// Whether the store can be opened or created. If so, it stays open.
  public var canOpen: Bool { (try? withStore { _ in true }) ?? false }

  /// Whether the store is blockaded.
  public var isBlockaded: Bool { gate.isShut }

  /// Passes the store to `body`, opening or creating it if necessary. Waits while it is blockaded or being
  /// closed.
  ///
  /// - Throws: errors of opening; `.busy` in the thread that has blockaded it; errors of `body`.
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

  // MARK: Exclusive access

  /// Waits until no thread is inside `withStore`, and keeps all others out until `unblockade`. The store
  /// stays open.
  ///
  /// The blockade belongs to the calling thread, which must not wait for itself. Tasks move between threads:
  /// they use `close(_:)` inside `run` instead.
  ///
  /// - Throws: `.busy` within `withStore`, and if this thread has blockaded it already.
  @available(*, noasync, message: "it belongs to a thread: keep others out by close(_:) inside run")
  public func blockade() throws(StoreError) {
    guard gate.shut() else {
      throw StoreError(.busy, "this thread is using the store: blockade it afterwards", path: path)
    }
  }

  /// Ends the blockade; from any thread.
  public func unblockade() { gate.open() }

  /// Waits until no thread is inside `withStore`, and closes the store: everything is durable then. The next
  /// use opens it again.
  ///
  /// - Throws: `.busy` within `withStore`; errors of closing.
  public func close() throws(StoreError) {
    try blockade()
    defer { unblockade() }
    try closeStore()
  }

  /// Closes the store, and runs `body` while no other thread or process can open it.
  ///
  /// - Throws: `.busy` within `withStore`, and if another process has it open; errors of closing and of
  ///   `body`.
  public func close<Result>(_ body: () throws -> Result) throws -> Result {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    guard try Store.exists(at: path, environment.storage) else { return try body() }
    let possession = try ExclusiveDirectoryLock(path, environment.storage)
    defer { possession.end() }
    return try body()
  }

  /// Closes the store before its directory is changed.
  ///
  /// - Throws: `.busy`, and it stays open, if the path leads to another directory by now.
  func closeInPlace() throws(StoreError) {
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

  /// The paths of all files of the store; empty if there is no store.
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
  /// - Throws: `.busy` within `withStore`, and if another process has it open; errors of closing.
  @discardableResult
  public func remove() throws(StoreError) -> Bool {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    return try Store.remove(at: path, environment.storage)
  }

  /// Closes the store and moves it to another directory, whose handle is returned. As `Store.move(from:to:)`.
  ///
  /// - Throws: `.busy` within `withStore`; errors of closing.
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

  // MARK: Memory

  /// Drops the store's caches.
  public func purgeMemory() { openStore?.purgeMemory() }

  /// Drops the caches of every open store of this process.
  public static func purgeMemory() {
    for handle in handles.withLock({ $0.values.compactMap(\.handle) }) { handle.purgeMemory() }
  }
}

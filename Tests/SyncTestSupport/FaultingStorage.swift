import Glibc
package import SyncStore

/// The calls of the storage seam that a test can make fail.
package enum StorageCall: String, Sendable, CaseIterable {
  case createDirectory, list, status, open, rename, remove, syncDirectory, fileSystem
  case fileStatus, read, write, resize, allocate, beginSync, sync, map, lock, mark
}

/// The plan: which calls fail, and how.
package final class FaultPlan: Sendable {
  private struct Fault {
    var call: StorageCall?
    var path: String?
    var countdown: Int
    var forever: Bool
    var errno: Int32
  }

  private struct Interruption {
    var call: StorageCall
    var path: String
    var action: @Sendable () -> Void
  }

  private let state = Locked<(faults: [Fault], calls: Int)>(([], 0))
  private let interruptions = Locked<[Interruption]>([])
  private let unlocked = Locked<(path: String, byte: Int, action: @Sendable () -> Void)?>(nil)
  private let observer: (@Sendable (StorageCall, String) -> Void)?

  /// A plan without failures. `observer` is called before each call.
  package init(observer: (@Sendable (StorageCall, String) -> Void)? = nil) { self.observer = observer }

  /// Number of calls so far; used to fail each call in turn.
  package var calls: Int { state.withLock { $0.calls } }

  /// Makes the `number`-th matching call from now on fail with `errno`, and all later ones if `forever`.
  /// Without `call` every call matches; `path` must be part of the call's path.
  package func fail(
    _ call: StorageCall? = nil, number: Int = 1, on path: String? = nil, forever: Bool = false,
    errno: Int32 = EIO
  ) {
    state.withLock {
      $0.faults.append(Fault(call: call, path: path, countdown: number, forever: forever, errno: errno))
    }
  }

  /// Runs `action` once, before the next call of that kind whose path ends in `path`: an action of another
  /// process between two steps of this one.
  package func before(_ call: StorageCall, of path: String, _ action: @escaping @Sendable () -> Void) {
    interruptions.withLock { $0.append(Interruption(call: call, path: path, action: action)) }
  }

  /// Runs `action` once, after the next unlock of that byte in a file whose path ends in `path`.
  package func afterUnlocking(_ byte: Int, of path: String, _ action: @escaping @Sendable () -> Void) {
    unlocked.withLock { $0 = (path, byte, action) }
  }

  fileprivate func hasUnlocked(_ byte: Int, of path: String) {
    let action = unlocked.withLock { unlocked -> (@Sendable () -> Void)? in
      guard let awaited = unlocked, awaited.byte == byte, path.hasSuffix(awaited.path) else { return nil }
      unlocked = nil
      return awaited.action
    }
    LockRank.suspended { action?() }
  }

  /// Clears all failures.
  package func clear() { state.withLock { $0.faults = [] } }

  func check(_ call: StorageCall, _ path: String) throws(StoreError) {
    LockRank.suspended { observer?(call, path) }
    let interruption = interruptions.withLock { interruptions -> Interruption? in
      guard let index = interruptions.firstIndex(where: { $0.call == call && path.hasSuffix($0.path) }) else {
        return nil
      }
      return interruptions.remove(at: index)
    }
    LockRank.suspended { interruption?.action() }
    let code = state.withLock { state -> Int32? in
      state.calls += 1
      var failing: Int32?
      for index in state.faults.indices {
        let fault = state.faults[index]
        guard fault.call == nil || fault.call == call, fault.path.map({ path.contains($0) }) ?? true else {
          continue
        }
        state.faults[index].countdown -= 1
        if state.faults[index].countdown == 0 || (fault.forever && fault.countdown <= 0) {
          failing = failing ?? fault.errno
        }
      }
      return failing
    }
    if let code { throw failure("\(call.rawValue) fails as planned", path, code) }
  }
}

extension String {
  fileprivate func contains(_ part: String) -> Bool {
    part.isEmpty || utf8.indices.contains { self[$0...].hasPrefix(part) }
  }
}

/// A storage that wraps another one and makes calls fail according to a plan. A failed call is not forwarded.
package final class FaultingStorage: Storage {
  /// The plan.
  package let plan: FaultPlan
  private let storage: any Storage
  /// The storage this one was anchored from; nil if a test made it.
  private let origin: FaultingStorage?

  /// Wraps `storage` with the faults of `plan`.
  package init(_ storage: any Storage, plan: FaultPlan = FaultPlan()) {
    (self.storage, self.plan, origin) = (storage, plan, nil)
  }

  private init(_ storage: any Storage, from origin: FaultingStorage) {
    (self.storage, plan, self.origin) = (storage, origin.plan, origin.origin ?? origin)
  }

  package func lockHolders(of path: String, byte: Int) -> [String] {
    storage.lockHolders(of: path, byte: byte)
  }

  package func createDirectory(_ path: String) throws(StoreError) -> Bool {
    try plan.check(.createDirectory, path)
    return try storage.createDirectory(path)
  }

  package func list(_ directory: String) throws(StoreError) -> [String] {
    try plan.check(.list, directory)
    return try storage.list(directory)
  }

  package func status(_ path: String) throws(StoreError) -> FileStatus? {
    try plan.check(.status, path)
    return try storage.status(path)
  }

  package func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile {
    try plan.check(.open, path)
    return FaultingFile(try storage.open(path, mode), plan)
  }

  package func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError)
    -> any StorageFile
  {
    try plan.check(.open, directory + "/" + name)
    return FaultingFile(try storage.open(name, beneath: directory, mode), plan)
  }

  package func rename(_ path: String, to newPath: String) throws(StoreError) {
    try plan.check(.rename, newPath)
    try storage.rename(path, to: newPath)
  }

  package func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool {
    try plan.check(.rename, newPath)
    return try storage.renameUnlessPresent(path, to: newPath)
  }

  package func exchange(_ path: String, with other: String) throws(StoreError) {
    try plan.check(.rename, other)
    try storage.exchange(path, with: other)
  }

  package func removeDirectory(_ path: String) throws(StoreError) -> Bool {
    try plan.check(.remove, path)
    return try storage.removeDirectory(path)
  }

  package func remove(_ path: String) throws(StoreError) -> Bool {
    try plan.check(.remove, path)
    return try storage.remove(path)
  }

  package func syncDirectory(_ path: String) throws(StoreError) {
    try plan.check(.syncDirectory, path)
    try storage.syncDirectory(path)
  }

  package func syncFileSystem(_ path: String) throws(StoreError) {
    try plan.check(.sync, path)
    try storage.syncFileSystem(path)
  }

  package func fileSystem(_ path: String) throws(StoreError) -> FileSystem {
    try plan.check(.fileSystem, path)
    return try storage.fileSystem(path)
  }

  package func systemPath(_ path: String) throws(StoreError) -> String? { try storage.systemPath(path) }

  package var isFileSystem: Bool { storage.isFileSystem }

  package func anchored(at path: String) throws(StoreError) -> any Storage {
    try plan.check(.open, path)
    return FaultingStorage(try storage.anchored(at: path), from: self)
  }

  package var unanchored: any Storage { origin ?? self }

  package var identity: ObjectIdentifier { ObjectIdentifier(origin ?? self) }
}

/// An open file of `FaultingStorage`.
private final class FaultingFile: StorageFile {
  private let file: any StorageFile
  private let plan: FaultPlan

  init(_ file: any StorageFile, _ plan: FaultPlan) {
    self.file = file
    self.plan = plan
  }

  var path: String { file.path }

  func status() throws(StoreError) -> FileStatus {
    try plan.check(.fileStatus, path)
    return try file.status()
  }

  // Known since the open: makes no call that could fail.
  var sizeAtOpening: Int { get throws(StoreError) { try file.sizeAtOpening } }

  var statusAtOpening: FileStatus { get throws(StoreError) { try file.statusAtOpening } }

  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8] {
    try plan.check(.read, path)
    return try file.read(count, at: offset)
  }

  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError) {
    try plan.check(.write, path)
    try file.write(bytes, at: offset)
  }

  func resize(to size: Int) throws(StoreError) {
    try plan.check(.resize, path)
    try file.resize(to: size)
  }

  func allocate(to size: Int) throws(StoreError) {
    try plan.check(.allocate, path)
    try file.allocate(to: size)
  }

  func sync() throws(StoreError) {
    try plan.check(.sync, path)
    try file.sync()
  }

  func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError) {
    try plan.check(.sync, path)
    try file.sync(range, of: mapping)
  }

  func sync(unchanged range: Range<Int>, of mapping: Mapping) throws(StoreError) {
    try plan.check(.sync, path)
    try file.sync(unchanged: range, of: mapping)
  }

  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping {
    try plan.check(.map, path)
    return try file.map(range, writable: writable)
  }

  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool {
    try plan.check(.lock, path)
    let isGranted = try file.lock(byte: byte, kind, wait: wait)
    if kind == .none { plan.hasUnlocked(byte, of: path) }
    return isGranted
  }

  func isLocked(byte: Int) throws(StoreError) -> Bool {
    try plan.check(.lock, path)
    return try file.isLocked(byte: byte)
  }

  func dropInForkedChildren() { file.dropInForkedChildren() }

  // A mark that cannot be set or read is treated as absent, not as an error.
  func mark() {
    if (try? plan.check(.mark, path)) != nil { file.mark() }
  }

  // Failing to start writeback is not an error.
  func startWriteback() {
    if (try? plan.check(.beginSync, path)) != nil { file.startWriteback() }
  }

  func writeBack(_ range: Range<Int>) throws(StoreError) {
    try plan.check(.sync, path)
    try file.writeBack(range)
  }

  func deferRelease() { file.deferRelease() }

  var isMarked: Bool { (try? plan.check(.mark, path)) != nil && file.isMarked }
}

import Foundation
package import SyncStore

/// A storage that wraps another one and searches all written data for words: the bytes of each write, names,
/// and the whole file (it may be written through a mapping) at each sync, resize, rename, remove or lock.
package final class WatchedStorage: Storage {
  private let storage: any Storage
  private let words: [Data]
  private let found = Locked<[String]>([])
  /// The storage this one was anchored from, which collects the findings; nil if a test made it.
  private let origin: WatchedStorage?

  /// Watches for `words` in writes to `storage`.
  package init(_ storage: any Storage, words: [String]) {
    self.storage = storage
    self.words = words.map { Data($0.utf8) }
    origin = nil
  }

  private init(_ storage: any Storage, from origin: WatchedStorage) {
    (self.storage, words, self.origin) = (storage, origin.words, origin.origin ?? origin)
  }

  /// Where a word was found, and through which call.
  package var findings: [String] { found.withLock { $0 } }

  fileprivate func look(at bytes: [UInt8], _ what: @autoclosure () -> String) {
    let data = Data(bytes)
    for word in words where data.range(of: word) != nil {
      let finding = "\(what()) holds \(String(decoding: word, as: UTF8.self))"
      (origin ?? self).found.withLock { $0.append(finding) }
    }
  }

  /// Searches the current content of a file, if it exists.
  fileprivate func look(atFile path: String, _ what: String) {
    guard let file = try? storage.open(path, .readOnly), let size = try? file.status().size,
      let bytes = try? file.read(size, at: 0)
    else { return }
    look(at: bytes, "\(path), \(what),")
  }

  private func look(atName path: String) { look(at: Array(path.utf8), "the name \(path)") }

  package func createDirectory(_ path: String) throws(StoreError) -> Bool {
    look(atName: path)
    return try storage.createDirectory(path)
  }

  package func list(_ directory: String) throws(StoreError) -> [String] { try storage.list(directory) }

  package func followingLink(_ path: String) throws(StoreError) -> String { try storage.followingLink(path) }

  package func status(_ path: String) throws(StoreError) -> FileStatus? { try storage.status(path) }

  package func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile {
    if mode == .create || mode == .openOrCreate { look(atName: path) }
    return WatchedFile(try storage.open(path, mode), self)
  }

  package func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError)
    -> any StorageFile
  {
    if mode == .create || mode == .openOrCreate { look(atName: name) }
    return WatchedFile(try storage.open(name, beneath: directory, mode), self)
  }

  package func rename(_ path: String, to newPath: String) throws(StoreError) {
    look(atFile: path, "renamed")
    look(atFile: newPath, "replaced")
    look(atName: newPath)
    try storage.rename(path, to: newPath)
  }

  package func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool {
    look(atFile: path, "renamed")
    look(atName: newPath)
    return try storage.renameUnlessPresent(path, to: newPath)
  }

  package func exchange(_ path: String, with other: String) throws(StoreError) {
    try storage.exchange(path, with: other)
  }

  package func removeDirectory(_ path: String) throws(StoreError) -> Bool {
    try storage.removeDirectory(path)
  }

  package func remove(_ path: String) throws(StoreError) -> Bool {
    look(atFile: path, "removed")
    return try storage.remove(path)
  }

  package func syncDirectory(_ path: String) throws(StoreError) { try storage.syncDirectory(path) }

  package func syncFileSystem(_ path: String) throws(StoreError) { try storage.syncFileSystem(path) }

  package func fileSystem(_ path: String) throws(StoreError) -> FileSystem { try storage.fileSystem(path) }

  package func lockHolders(of path: String, byte: Int) -> [String] {
    storage.lockHolders(of: path, byte: byte)
  }

  package func systemPath(_ path: String) throws(StoreError) -> String? { try storage.systemPath(path) }

  package var isFileSystem: Bool { storage.isFileSystem }

  package func anchored(at path: String) throws(StoreError) -> any Storage {
    WatchedStorage(try storage.anchored(at: path), from: self)
  }

  package var unanchored: any Storage { origin ?? self }

  package var identity: ObjectIdentifier { ObjectIdentifier(origin ?? self) }
}

/// An open file of `WatchedStorage`.
private final class WatchedFile: StorageFile {
  private let file: any StorageFile
  private let watch: WatchedStorage

  init(_ file: any StorageFile, _ watch: WatchedStorage) { (self.file, self.watch) = (file, watch) }

  var path: String { file.path }

  func status() throws(StoreError) -> FileStatus { try file.status() }

  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8] { try file.read(count, at: offset) }

  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError) {
    watch.look(at: bytes, "a write to \(path) at \(offset)")
    try file.write(bytes, at: offset)
  }

  func resize(to size: Int) throws(StoreError) {
    watch.look(atFile: path, "resized")
    try file.resize(to: size)
  }

  func allocate(to size: Int) throws(StoreError) { try file.allocate(to: size) }

  func sync() throws(StoreError) {
    watch.look(atFile: path, "synced")
    try file.sync()
  }

  func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError) {
    watch.look(atFile: path, "synced")
    try file.sync(range, of: mapping)
  }

  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping {
    try file.map(range, writable: writable)
  }

  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool {
    if kind == .none { watch.look(atFile: path, "unlocked") }
    return try file.lock(byte: byte, kind, wait: wait)
  }

  func isLocked(byte: Int) throws(StoreError) -> Bool { try file.isLocked(byte: byte) }

  func dropInForkedChildren() { file.dropInForkedChildren() }

  func mark() { file.mark() }

  var isMarked: Bool { file.isMarked }
}

import Glibc
import SyncStore

/// A simulated storage anchored to one open directory: paths below the path it was opened under resolve to
/// that directory, even after it was renamed. Once the directory is removed they resolve to nothing.
final class AnchoredSimulatedStorage: Storage {
  private let storage: SimulatedStorage
  private let path: String
  private let inode: UInt64

  init(_ storage: SimulatedStorage, at path: String) throws(StoreError) {
    guard let status = try storage.status(path), status.kind == .directory else {
      throw failure("cannot open the directory", path, ENOENT)
    }
    (self.storage, self.path, inode) = (storage, path, status.inode)
  }

  /// Where `path` resolves now.
  private func located(_ path: String) throws(StoreError) -> String {
    let isBelow = path.utf8.starts(with: self.path.utf8)
    guard isBelow, path.utf8.count == self.path.utf8.count || path.hasPrefix(self.path + "/") else {
      return path
    }
    return try place() + String(path.dropFirst(self.path.count))
  }

  private func place() throws(StoreError) -> String {
    if try storage.status(path)?.inode == inode { return path }
    let inode = inode
    return try storage.locked { state throws(StoreError) in
      state.liveDirectories().first { $0.node.inode == inode }?.path ?? "/removed/\(inode)"
    }
  }

  func createDirectory(_ path: String) throws(StoreError) -> Bool {
    try storage.createDirectory(located(path))
  }
  func list(_ directory: String) throws(StoreError) -> [String] { try storage.list(located(directory)) }
  func status(_ path: String) throws(StoreError) -> FileStatus? { try storage.status(located(path)) }
  func remove(_ path: String) throws(StoreError) -> Bool { try storage.remove(located(path)) }
  func removeDirectory(_ path: String) throws(StoreError) -> Bool {
    try storage.removeDirectory(located(path))
  }
  func syncDirectory(_ path: String) throws(StoreError) { try storage.syncDirectory(located(path)) }
  func syncFileSystem(_ path: String) throws(StoreError) { try storage.syncFileSystem(located(path)) }
  func fileSystem(_ path: String) throws(StoreError) -> FileSystem { try storage.fileSystem(located(path)) }
  func systemPath(_ path: String) -> String? { nil }
  var isFileSystem: Bool { false }
  var unanchored: any Storage { storage }
  var identity: ObjectIdentifier { storage.identity }

  func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile {
    try storage.open(located(path), mode)
  }

  func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile
  {
    try storage.open(name, beneath: located(directory), mode)
  }

  func rename(_ path: String, to newPath: String) throws(StoreError) {
    try storage.rename(located(path), to: located(newPath))
  }

  func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool {
    try storage.renameUnlessPresent(located(path), to: located(newPath))
  }

  func exchange(_ path: String, with other: String) throws(StoreError) {
    try storage.exchange(located(path), with: located(other))
  }

  func anchored(at path: String) throws(StoreError) -> any Storage {
    path.utf8.elementsEqual(self.path.utf8) ? self : try AnchoredSimulatedStorage(storage, at: path)
  }
}

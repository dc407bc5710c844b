private import CLinux
private import Glibc

/// Resolving a path to the directory and name of a system call, and anchoring a directory.
extension DiskStorage {
  /// Calls `body` with the directory descriptor and the name that resolve `path`: the only way from a path to
  /// a system call.
  func at<Result>(
    _ path: String, _ body: (_ directory: Int32, _ name: UnsafePointer<CChar>) -> Result
  ) -> Result {
    if let anchor { return unsafe anchor.resolving(path, body) }
    return unsafe path.withCString { unsafe body(AT_FDCWD, $0) }
  }

  /// Resolves two paths for one system call.
  func at<Result>(
    _ path: String, and other: String,
    _ body: (Int32, UnsafePointer<CChar>, Int32, UnsafePointer<CChar>) -> Result
  ) -> Result {
    unsafe at(path) { directory, name in
      unsafe at(other) { unsafe body(directory, name, $0, $1) }
    }
  }

  package func anchored(at path: String) throws(StoreError) -> any Storage {
    if let anchor, anchor.path.utf8.elementsEqual(path.utf8) { return self }
    guard let anchor = DirectoryAnchor(path) else {
      throw SystemCall.failure("cannot open the directory", path)
    }
    return DiskStorage(handlesSignals: handlesSignals, anchor: anchor)
  }

  package var unanchored: any Storage {
    anchor == nil ? self : DiskStorage(handlesSignals: handlesSignals)
  }

  package func systemPath(_ path: String) throws(StoreError) -> String? {
    try anchor?.systemPath(path) ?? path
  }

  package var isFileSystem: Bool { true }

  /// Equal for all real storages, which show the same files.
  package var identity: ObjectIdentifier { ObjectIdentifier(DiskStorage.self) }

  /// The first 256 bytes of a virtual kernel file (/proc), whose size is unknown before it is read.
  func kernelFile(_ path: String) throws(StoreError) -> [UInt8] {
    let descriptor = unsafe sync_open(AT_FDCWD, path, O_RDONLY, 0)
    guard descriptor >= 0 else { throw SystemCall.failure("cannot open it", path) }
    return try regularFile(descriptor, path).readUnsized(256, at: 0)
  }
}

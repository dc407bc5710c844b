private import CLinux
private import Glibc

/// A directory held open by a descriptor, so that operations below it stay in it when it is renamed or
/// another one takes its name.
///
/// Callers keep naming files by the path under which the directory was opened. A path that begins with it is
/// resolved from the descriptor, the path of its parent as "..", and any other path unchanged. Paths are
/// compared by their bytes.
///
/// This is one of the few files that use `unsafe`: each pointer is made for one system call and does not
/// outlive it.
final class DirectoryAnchor: Sendable {
  /// The path under which it was opened.
  let path: String
  private let parent: String
  private let descriptor: Int32
  /// Whether it lies on overlayfs, where a file can be in a lower layer.
  let isLayered: Bool

  /// Opens the directory at `path`, which must not be a link; nil on failure, with the reason in `errno`.
  init?(_ path: String) {
    let opened = SystemCall.retrying { unsafe sync_hold_directory(AT_FDCWD, path) }
    guard opened >= 0 else { return nil }
    descriptor = SystemCall.moveAboveStdio(opened)
    (self.path, parent) = (path, DiskStorage.directory(of: path))
    var (free, type, isReadOnly) = (UInt64(0), UInt64(0), Int32(0))
    isLayered =
      unsafe sync_file_system_status(descriptor, ".", &free, &type, &isReadOnly) == 0
      && type == FileSystem.overlay
  }

  deinit { close(descriptor) }

  /// Calls `body` with the directory descriptor and the name that resolve `path` in a system call.
  func resolving<Result>(
    _ path: String, _ body: (_ directory: Int32, _ name: UnsafePointer<CChar>) -> Result
  ) -> Result {
    let count = self.path.utf8.count
    return unsafe path.withCString { name in
      let isBelow = unsafe self.path.withCString { unsafe strncmp(name, $0, count) } == 0
      if isBelow, unsafe name[count] == 0 { return unsafe body(descriptor, ".") }
      if isBelow, unsafe name[count] == CChar(DiskStorage.slash) {
        let rest = unsafe name + count + strspn(name + count, "/")
        return unsafe rest.pointee == 0 ? body(descriptor, ".") : body(descriptor, rest)
      }
      let isParent = unsafe parent.withCString { unsafe strcmp(name, $0) } == 0
      return unsafe isParent ? body(descriptor, "..") : body(AT_FDCWD, name)
    }
  }

  /// A path below the directory wherever it is now, for a library that opens files by itself. It goes through
  /// the descriptor's link in /proc, which lasts as long as this object. Without /proc it is `path` itself,
  /// if that still leads here.
  ///
  /// - Throws: `.busy` if there is no /proc, and the directory was renamed or replaced.
  func systemPath(_ path: String) throws(StoreError) -> String {
    let rest = unsafe resolving(path) { directory, name in
      unsafe directory == descriptor ? String(cString: name) : nil
    }
    guard let rest else { return path }
    let link = "/proc/self/fd/\(descriptor)"
    if resolvesHere(link + "/.") { return rest == "." ? link : link + "/" + rest }
    guard resolvesHere(self.path) else {
      throw StoreError(
        .busy,
        "the directory was renamed or replaced while it was open, and is not found without /proc: mount /proc, or close the store",
        path: self.path)
    }
    return path
  }

  private func resolvesHere(_ path: String) -> Bool {
    var (own, found) = (stat(), stat())
    return unsafe fstat(descriptor, &own) == 0 && lstat(path, &found) == 0 && own.st_dev == found.st_dev
      && own.st_ino == found.st_ino
  }
}

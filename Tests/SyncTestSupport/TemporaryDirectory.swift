import Glibc
import SyncStore

/// A directory of its own for one test, removed with all in it when the last reference goes.
package final class TemporaryDirectory: Sendable {
  /// Its absolute path, without a slash at the end.
  package let path: String

  /// A new, empty directory below `$TMPDIR` or, without that, /tmp; with `inMemory` /dev/shm, where there is one.
  package init(inMemory: Bool = false) {
    let usual = unsafe inMemory && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
    let parent = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? usual
    var template = Array("\(parent)/sync-store-XXXXXX".utf8CString)
    guard unsafe mkdtemp(&template) != nil else { fatalError("no temporary directory in \(parent)") }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit { Self.remove(path, DiskStorage()) }

  private static func remove(_ path: String, _ storage: DiskStorage) {
    guard let status = try? storage.status(path) else { return }
    guard status.kind == .directory else {
      unsafe unlink(path)
      return
    }
    // A test may have taken the permissions away.
    unsafe chmod(path, 0o700)
    for name in (try? storage.list(path)) ?? [] { remove(path + "/" + name, storage) }
    unsafe rmdir(path)
  }
}

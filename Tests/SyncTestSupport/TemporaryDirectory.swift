import Glibc
import SyncStore

/// A private directory for one test, removed recursively with the last reference.
package final class TemporaryDirectory: Sendable {
  /// Absolute path without a trailing slash.
  package let path: String

  /// Makes an empty directory below `$TMPDIR` or /tmp; with `inMemory` below /dev/shm, if it exists.
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
    // A test may have removed the permissions.
    unsafe chmod(path, 0o700)
    for name in (try? storage.list(path)) ?? [] { remove(path + "/" + name, storage) }
    unsafe rmdir(path)
  }
}

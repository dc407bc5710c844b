private import Dispatch
private import Glibc

/// Calls back when an entry of a directory has changed (inotify(7)).
///
/// A hint only: a network file system says nothing of what other machines change.
///
/// Invariant: `source` is set by `init` and cancelled by `deinit`, and used nowhere else.
@safe package final class DirectoryWatch: Sendable {
  private nonisolated(unsafe) let source: any DispatchSourceRead
  private static let bufferBytes = 4096

  /// Watches a directory on a disk until it is deallocated; nil if the system has no watches left, or the
  /// directory is gone. `changed` is called on a thread of the system and must return at once.
  package init?(_ path: String, _ changed: @escaping @Sendable () -> Void) {
    let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
    guard descriptor >= 0 else { return nil }
    let events = UInt32(IN_MOVED_TO) | UInt32(IN_CLOSE_WRITE) | UInt32(IN_CREATE) | UInt32(IN_DELETE)
    guard unsafe inotify_add_watch(descriptor, path, events) >= 0 else {
      close(descriptor)
      return nil
    }
    let source = DispatchSource.makeReadSource(fileDescriptor: descriptor)
    source.setEventHandler {
      var buffer = [UInt8](repeating: 0, count: Self.bufferBytes)
      // Which entry it was does not matter.
      while unsafe read(descriptor, &buffer, Self.bufferBytes) > 0 {}
      changed()
    }
    source.setCancelHandler { close(descriptor) }
    source.resume()
    unsafe self.source = source
  }

  deinit { unsafe source.cancel() }
}

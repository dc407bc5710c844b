private import CLinux
private import Glibc
internal import SyncStore

/// Tells when addresses of this machine have gone, and when some have come, or their link runs again. Belongs to its loop's
/// thread. The kernel says that something has changed (rtnetlink(7)); what it is, is found by comparing with what there was.
final class NetworkWatch: EventHandler {
  /// What a look at the addresses has found.
  struct Change: Hashable {
    /// All addresses there are now.
    var present: StringSet
    /// Has an address come, or does the link of one run again?
    var hasCome = false
    /// Has one gone?
    var hasGone = false
  }

  /// Changes come in bursts.
  private static let debounceMilliseconds = 200

  private let loop: EventLoop
  private let descriptor: Int32
  private var token: UInt64 = 0
  private var known: (running: StringSet, all: StringSet)
  private var timer: UInt64?
  private let onChange: (Change) -> Void

  /// Begins to watch; nil where the kernel does not allow it: what is dead then shows by its silence alone.
  init?(_ loop: EventLoop, onChange: @escaping (Change) -> Void) {
    loop.checkCurrent()
    let descriptor = sync_network_watch()
    guard descriptor >= 0 else { return nil }
    // After the socket is there: what changes from now on is told.
    (self.loop, self.descriptor, self.onChange) = (loop, SystemCall.moveAboveStdio(descriptor), onChange)
    known = SocketAddress.present() ?? ([], [])
    guard let token = loop.add(self.descriptor, reading: true, writing: false, self) else {
      close(self.descriptor)
      return nil
    }
    self.token = token
  }

  /// Ends.
  func stop() {
    guard token != 0 else { return }
    if let timer { loop.cancel(timer) }
    loop.remove(descriptor, token: token)
    token = 0
    close(descriptor)
  }

  func handle(_ event: Epoll.Event) {
    sync_network_drain(descriptor)
    guard timer == nil else { return }
    timer = loop.schedule(after: Self.debounceMilliseconds) { [weak self] in self?.checkAddresses() }
  }

  private func checkAddresses() {
    timer = nil
    guard let found = SocketAddress.present() else { return }
    let change = Change(
      present: found.all, hasCome: !found.running.isSubset(of: known.running),
      hasGone: !known.all.isSubset(of: found.all))
    known = found
    if change.hasCome || change.hasGone { onChange(change) }
  }
}

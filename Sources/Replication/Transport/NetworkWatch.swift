private import CLinux
private import Glibc
internal import SyncStore

/// Reports addresses of this machine that were removed or added, and links that came up again. Confined to
/// its loop's thread.
///
/// The kernel reports that something changed (rtnetlink(7)); the change itself is found by comparing the
/// addresses.
final class NetworkWatch: EventHandler {
  /// A change of the addresses.
  struct Change: Hashable {
    /// All current addresses.
    var present: StringSet
    /// Whether an address was added, or the link of one came up again.
    var hasCome = false
    /// Whether an address was removed.
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

  /// Starts watching; nil if the kernel does not allow it. Dead connections are then detected only by their
  /// silence.
  init?(_ loop: EventLoop, onChange: @escaping (Change) -> Void) {
    loop.checkCurrent()
    let descriptor = sync_network_watch()
    guard descriptor >= 0 else { return nil }
    // The addresses are read after the socket exists, so that no later change is missed.
    (self.loop, self.descriptor, self.onChange) = (loop, SystemCall.moveAboveStdio(descriptor), onChange)
    known = SocketAddress.present() ?? ([], [])
    guard let token = loop.add(self.descriptor, interest: .read, self) else {
      close(self.descriptor)
      return nil
    }
    self.token = token
  }

  /// Stops watching.
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

private import CLinux
private import Glibc

/// Signals that the listener passes to the thread that waits for a line.
final class SignalInbox: Sendable {
  private let reading: Int32
  private let writing: Int32

  /// Nil if there is no descriptor left.
  init?() {
    var ends: [Int32] = [-1, -1]
    guard unsafe pipe(&ends) == 0 else { return nil }
    (reading, writing) = (ends[0], ends[1])
    for end in ends {
      _ = fcntl(end, F_SETFD, FD_CLOEXEC)
      _ = sync_set_nonblocking(end)
    }
  }

  deinit {
    close(reading)
    close(writing)
  }

  /// Puts a signal into it.
  func put(_ number: Int32) {
    var byte = UInt8(truncatingIfNeeded: number)
    _ = unsafe write(writing, &byte, 1)
  }

  /// Drops what is in it.
  func clear() { while take() != nil {} }

  /// Waits until a byte can be read from the descriptor, or for a signal, which is returned.
  func waitReadable(_ descriptor: Int32) -> Int32? {
    var waiting = [
      pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: reading, events: Int16(POLLIN), revents: 0),
    ]
    while unsafe poll(&waiting, 2, -1) < 0, errno == EINTR {}
    return waiting[1].revents == 0 ? nil : take()
  }

  private func take() -> Int32? {
    var byte: UInt8 = 0
    return unsafe read(reading, &byte, 1) == 1 ? Int32(byte) : nil
  }
}

private import CLinux
private import Glibc

/// Waits, on a thread of its own, for the kernel to report memory pressure (PSI, Linux 5.2).
///
/// Two triggers: some threads stall for a tenth of two seconds, or all of them do for a twentieth. Two
/// seconds is the window that the kernel grants without privileges since 6.5.
struct PressureWatch: Sendable {
  /// The pressure file with the triggers.
  let path: String

  /// Microseconds of stall, and of the window in which they are counted.
  private static let triggers: [(MemoryPressure.Level, String)] = [
    (.some, "some 200000 2000000"), (.critical, "full 100000 2000000"),
  ]

  /// Starts waiting; nil if no pressure file accepts the triggers.
  static func begin(_ tell: @escaping @Sendable (MemoryPressure.Level) -> Void) -> PressureWatch? {
    for path in candidates() {
      var descriptors: [(MemoryPressure.Level, Int32)] = []
      for (level, trigger) in triggers {
        let descriptor = unsafe sync_open(AT_FDCWD, path, O_RDWR | O_NONBLOCK, 0)
        guard descriptor >= 0 else { break }
        let safe = SystemCall.moveAboveStdio(descriptor)
        // The kernel expects the terminating zero, too.
        let count = unsafe trigger.withCString { unsafe Glibc.write(safe, $0, trigger.utf8.count + 1) }
        guard count > 0 else {
          close(safe)
          break
        }
        descriptors.append((level, safe))
      }
      if !descriptors.isEmpty {
        let waited = descriptors
        Background.runForever { wait(waited, tell) }
        return PressureWatch(path: path)
      }
    }
    return nil
  }

  /// The process's own cgroup first: its limit is met before the machine's.
  private static func candidates() -> [String] {
    var paths: [String] = []
    let storage = DiskStorage(handlesSignals: false)
    if let bytes = try? storage.kernelFile("/proc/self/cgroup") {
      let line = String(decoding: bytes, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("0::/") }
      if let line, line != "0::/" { paths.append("/sys/fs/cgroup\(line.dropFirst(3))/memory.pressure") }
    }
    return paths + ["/proc/pressure/memory"]
  }

  private static func wait(
    _ descriptors: [(MemoryPressure.Level, Int32)], _ tell: (MemoryPressure.Level) -> Void
  ) {
    var polls = descriptors.map { pollfd(fd: $0.1, events: Int16(POLLPRI), revents: 0) }
    while true {
      let count = unsafe poll(&polls, nfds_t(polls.count), -1)
      if count < 0 {
        guard errno == EINTR else { return }
        continue
      }
      var greatest: MemoryPressure.Level?
      for (index, poll) in polls.enumerated() {
        // The cgroup is gone.
        if poll.revents & Int16(POLLERR) != 0 { return }
        guard poll.revents & Int16(POLLPRI) != 0 else { continue }
        greatest = max(greatest ?? .some, descriptors[index].0)
      }
      if let greatest { tell(greatest) }
    }
  }
}

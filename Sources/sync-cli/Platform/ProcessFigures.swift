private import Glibc

/// Figures of this process, for metrics. What the kernel does not tell is nil, for example without /proc.
struct ProcessFigures: Equatable, Sendable {
  /// Seconds of processor time, in user and in system mode.
  var processorSeconds: Double
  /// Bytes in memory.
  var residentBytes: UInt64?
  /// Open descriptors, and the bound on them.
  var descriptors: Int?
  var mostDescriptors: UInt64?

  /// Asks the kernel.
  init() {
    var usage = rusage()
    _ = unsafe getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    processorSeconds =
      Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
      + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6
    residentBytes = Self.residentBytes()
    descriptors = Self.openDescriptors()
    var limit = rlimit()
    if unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 {
      mostDescriptors = UInt64(limit.rlim_cur)
    }
  }

  /// The second number of /proc/self/statm, in pages.
  private static func residentBytes() -> UInt64? {
    guard let file = try? Descriptor.reading(Array("/proc/self/statm".utf8)),
      let text = try? file.readAll(limit: 4096)
    else { return nil }
    let words = text.split(separator: 0x20)
    guard words.count > 1, let pages = UInt64(String(decoding: words[1], as: UTF8.self)) else { return nil }
    return pages * UInt64(sysconf(Int32(_SC_PAGESIZE)))
  }

  private static func openDescriptors() -> Int? {
    guard let directory = unsafe opendir("/proc/self/fd") else { return nil }
    defer { unsafe closedir(directory) }
    // Not counted: the directory itself, and its two links.
    var count = -3
    while unsafe readdir(directory) != nil { count += 1 }
    return count
  }
}

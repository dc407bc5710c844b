private import CLinux
private import Glibc

/// Naming the holders of a lock in an error.
extension DiskStorage {
  /// Bounds on processes examined and named: a hint in an error must not take long on a machine with very
  /// many.
  private static let mostLookedAt = 4096, mostNamed = 3

  /// The processes with an open file that locks that byte of the regular file at `path`, as "process 4711
  /// (sync-cli)".
  ///
  /// The kernel does not tell the owner of an OFD lock (`F_OFD_GETLK` and /proc/locks give -1), so the
  /// descriptors of the processes that this one may inspect are searched. Empty without /proc, and for a
  /// process of another user or another PID namespace.
  package func lockHolders(of path: String, byte: Int) -> [String] {
    var file = stat()
    guard unsafe stat(path, &file) == 0, let processes = try? list("/proc") else { return [] }
    var holders: [String] = []
    for process in processes.lazy.filter({ Int32($0) != nil }).prefix(Self.mostLookedAt) {
      guard holders.count < Self.mostNamed else { break }
      let directory = "/proc/\(process)"
      guard let descriptors = try? list(directory + "/fd") else { continue }
      let hasLock = descriptors.contains { descriptor in
        var other = stat()
        guard unsafe stat("\(directory)/fd/\(descriptor)", &other) == 0, other.st_ino == file.st_ino,
          other.st_dev == file.st_dev,
          let information = try? kernelFile("\(directory)/fdinfo/\(descriptor)")
        else { return false }
        return String(decoding: information, as: UTF8.self).utf8.split(separator: 0x0A).contains {
          Self.isLock($0, on: byte)
        }
      }
      if hasLock { holders.append(Self.named(process, (try? kernelFile(directory + "/comm")) ?? [])) }
    }
    return holders
  }

  /// Whether a line of fdinfo describes a lock on that byte, such as "lock: 1: OFDLCK  ADVISORY  WRITE -1
  /// fe:00:1057 0 0": the last two words are the first and the last byte, or `EOF`.
  private static func isLock(_ line: some Collection<UInt8>, on byte: Int) -> Bool {
    guard line.starts(with: "lock:".utf8) else { return false }
    let bounds = line.split(separator: 0x20).suffix(2)
      .map { Int(String(decoding: $0, as: UTF8.self)) ?? .max }
    return bounds.count == 2 && bounds[0] <= byte && byte <= bounds[1]
  }

  /// A program chooses its own name: only printable ASCII without spaces is shown.
  private static func named(_ process: String, _ name: [UInt8]) -> String {
    let shown = name.filter { $0 > 0x20 && $0 < 0x7F }
    return "process \(process)" + (shown.isEmpty ? "" : " (\(String(decoding: shown, as: UTF8.self)))")
  }
}

extension Storage {
  /// A storage without processes knows no holders.
  package func lockHolders(of path: String, byte: Int) -> [String] { [] }
}

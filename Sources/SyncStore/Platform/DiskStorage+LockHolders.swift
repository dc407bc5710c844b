private import CLinux
private import Glibc

/// Who has a lock on a file, for an error that is to name it.
extension DiskStorage {
  /// Processes looked at, and named. It is a hint in an error, and must not take long on a machine with very many.
  private static let mostLookedAt = 4096, mostNamed = 3

  /// The processes that have an open file with a lock on the regular file at `path`, as "process 4711 (sync-cli)". The kernel tells
  /// nothing of the owner of an OFD lock (`F_OFD_GETLK` and /proc/locks give -1), so the descriptors of the processes that this one may
  /// look at are searched. Empty without /proc, and for a process of another user or another PID namespace.
  package func lockHolders(of path: String) -> [String] {
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
          $0.starts(with: "lock:".utf8)
        }
      }
      if hasLock { holders.append(Self.named(process, (try? kernelFile(directory + "/comm")) ?? [])) }
    }
    return holders
  }

  /// A program chooses its own name: only what is printed as one character of one line is shown.
  private static func named(_ process: String, _ name: [UInt8]) -> String {
    let shown = name.filter { $0 > 0x20 && $0 < 0x7F }
    return "process \(process)" + (shown.isEmpty ? "" : " (\(String(decoding: shown, as: UTF8.self)))")
  }
}

extension Storage {
  /// No process is known.
  package func lockHolders(of path: String) -> [String] { [] }

  /// Those processes in words; `otherwise` if none is known.
  func lockHolders(of path: String, otherwise: String) -> String {
    let holders = lockHolders(of: path)
    return holders.isEmpty ? otherwise : holders.joined(separator: ", ")
  }
}

import Testing

/// Checks which files make which system calls: a path reaches the kernel only relative to the held directory
/// of an open store, and every call that a sandbox can refuse is made by one function with a fallback.
@Suite struct SystemCallTests {
  private let swift = Repository.swiftFiles.filter { $0.hasPrefix("Sources/") }
  private let c =
    Repository.files(in: "Sources", ending: ".c") + Repository.files(in: "Sources", ending: ".h")

  /// Calls that take only a path, which names another file once a directory is renamed; the calls whose names
  /// end with "at" are relative to a held directory.
  private static let byPath = [
    "open", "creat", "fopen", "opendir", "scandir", "stat", "lstat", "statfs", "statvfs", "access",
    "mkdir",
    "rmdir",
    "unlink", "remove", "rename", "link", "symlink", "readlink", "realpath", "chmod", "chown",
    "lchown",
    "truncate",
    "mknod", "mkfifo", "utime", "utimes", "chdir", "getcwd", "nftw", "glob", "mkstemp", "mkdtemp",
    "execv",
    "execve",
  ]

  /// The files that may make such calls, and why.
  private static let allowed: [String: Set<String>] = [
    // The link in /proc that leads to a held directory, and whether a path still leads there.
    "Sources/SyncStore/Platform/DirectoryAnchor.swift": ["lstat"],
    // Which process holds a lock, as the files in /proc show.
    "Sources/SyncStore/Platform/DiskStorage+LockHolders.swift": ["stat"],
    // A path that a caller names, made absolute before anything is opened.
    "Sources/SyncStore/Platform/SystemCall.swift": ["realpath"],
    // The file of a Unix socket, whose path the configuration names.
    "Sources/Replication/Transport/Socket.swift": ["lstat", "unlink", "chmod"],
    // The process's own descriptors.
    "Sources/sync-cli/Platform/ProcessFigures.swift": ["opendir"],
    // /dev/null for closed standard streams, the terminal, and what the user names on the command line.
    "Sources/sync-cli/Platform/System.swift": ["open"],
    "Sources/sync-cli/Platform/Terminal.swift": ["open"],
    "Sources/sync-cli/Platform/Descriptor.swift": ["stat", "mkdir"],
  ]

  @Test("a bare path is passed to the kernel only where the reason is documented")
  func paths() throws {
    var unused = Self.allowed
    for path in swift where try Repository.read(path).contains("import Glibc") {
      for line in try Repository.lines(path) where !line.drop(while: { $0 == " " }).hasPrefix("//") {
        for match in line.matches(of: /(?:unsafe|&&) (?:Glibc\.)?([a-z]+)\(/)
        where Self.byPath.contains(String(match.1)) {
          let name = String(match.1)
          #expect(Self.allowed[path]?.contains(name) == true, "\(path): \(line)")
          unused[path]?.remove(name)
        }
      }
    }
    let leftOver = unused.filter { !$0.value.isEmpty }
    #expect(leftOver.isEmpty, "no longer needed: \(leftOver)")
    for path in c {
      for line in try Repository.lines(path) where !line.drop(while: { $0 == " " }).hasPrefix("//") {
        for match in line.matches(of: /(?:^|[^\w.>])([a-z]+)\(/) {
          #expect(!Self.byPath.contains(String(match.1)), "\(path): \(line)")
        }
      }
    }
  }

  /// Calls above POSIX, and the only file that makes each.
  private static let refusable = [
    "openat2": "files.c", "renameat2": "files.c", "statx": "files.c", "fallocate": "files.c",
    "membarrier": "shim.c", "sync_file_range": "shim.c", "syncfs": "shim.c",
    "MADV_POPULATE_WRITE": "shim.c",
    "F_SET_RW_HINT": "shim.c", "F_GET_RW_HINT": "shim.c", "F_OFD_SETLK": "shim.c",
    "SYS_futex": "shim.c",
    "epoll_create1": "sockets.c", "eventfd": "sockets.c", "accept4": "sockets.c",
  ]
  /// Unused calls: the change that introduces one adds a fallback, a row above, and one in
  /// `RefusedCallTests`.
  private static let unused = [
    "memfd_create", "close_range", "copy_file_range", "preadv2", "pwritev2", "O_TMPFILE",
    "pidfd_open",

    "inotify_init", "fanotify", "userfaultfd", "process_madvise", "FALLOC_FL_PUNCH_HOLE",
    "posix_fallocate",
    "landlock_create_ruleset", "MAP_SYNC", "mseal", "io_uring_setup",
  ]

  @Test("a call that a kernel or sandbox may lack is made in one place")
  func refusable() throws {
    for path in c + swift {
      let code = try Repository.lines(path).filter { !$0.drop { $0 == " " }.hasPrefix("//") }
      let words = Set(
        code.flatMap { $0.utf8.split { !Self.isOfWord($0) } }.map { String(Substring($0)) })
      for (name, file) in Self.refusable where words.contains(name) || words.contains("SYS_" + name) {
        let isCalled = code.contains { $0.contains(name + "(") || $0.contains("SYS_" + name) }
        #expect(path.hasSuffix("/" + file) || !isCalled, "\(path): \(name)")
      }
      for name in Self.unused { #expect(!words.contains(name), "\(path): \(name)") }
    }
  }

  private static func isOfWord(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"):
      true
    default: false
    }
  }
}

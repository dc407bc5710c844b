private import CLinux
private import Glibc
import SyncStore

/// The machine, as far as a report on a problem needs it.
enum Machine {
  /// Kernel, memory pages, the file system of a store, and the limits of a process.
  static func report(of path: String) throws(Failure) -> JSON {
    var json: JSON = [
      "version": .string(Program.version), "page_bytes": .integer(sysconf(Int32(_SC_PAGESIZE))),
      "processors": .integer(sysconf(Int32(_SC_NPROCESSORS_ONLN))),
      "memory_bytes": .integer(sysconf(Int32(_SC_PHYS_PAGES)) * sysconf(Int32(_SC_PAGESIZE))),
    ]
    var name = utsname()
    if unsafe uname(&name) == 0 {
      json = json.with("system", .string(text(name.sysname))).with(
        "kernel", .string(text(name.release))
      )
      .with("processor", .string(text(name.machine)))
    }
    for line in content("/etc/os-release") {
      guard let name = line.wholeMatch(of: /PRETTY_NAME="?([^"]*)"?/)?.1 else { continue }
      json = json.with("distribution", .string(String(name)))
    }
    for (name, resource) in limits { json = json.with("limit_\(name)", limit(resource)) }
    return json.with("file_system", try fileSystem(path))
  }

  private static let limits = [
    ("open_files", RLIMIT_NOFILE), ("file_bytes", RLIMIT_FSIZE), ("address_space", RLIMIT_AS),
    ("locked_memory", __RLIMIT_MEMLOCK),
  ]

  /// A limit of this process; null if there is none.
  private static func limit(_ resource: __rlimit_resource) -> JSON {
    var limit = rlimit()
    guard unsafe getrlimit(__rlimit_resource_t(resource.rawValue), &limit) == 0,
      limit.rlim_cur < .max
    else { return .null }
    return .integer(limit.rlim_cur)
  }

  /// Type, mount options and space of the file system. Values of options are left out if they hold a path.
  private static func fileSystem(_ path: String) throws(Failure) -> JSON {
    let directory = try Descriptor.reading(Array(path.utf8), waiting: false)
    var json: JSON = ["free_bytes": .integer(try directory.freeBytes())]
    guard let mount = try mount(of: directory) else { return json }
    let options = (mount.options + mount.superOptions).map { option in
      option.contains("/") ? String(option.prefix { $0 != "=" }) + "=<path>" : option
    }
    json = json.with("type", .string(mount.type))
    return json.with("options", .array(Array(Set(options)).sorted().map { .string($0) }))
  }

  private struct Mount {
    let type: String
    let options, superOptions: [String]
  }

  /// The mount that a directory is in: that of its device, or, where a file system has devices of its own
  /// (btrfs), that with the longest path.
  private static func mount(of directory: Descriptor) throws(Failure) -> Mount? {
    var status = stat()
    guard unsafe fstat(directory.number, &status) == 0 else { return nil }
    // gnu_dev_major, gnu_dev_minor (makedev(3)).
    let device = status.st_dev
    let (major, minor) = (device >> 8 & 0xFFF | device >> 32 & ~0xFFF, device & 0xFF | device >> 12 & ~0xFF)
    let path = (try? StoreInspection(at: Text.printable(directory.path)).path) ?? ""
    var found: (length: Int, mount: Mount)?
    // "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw" (proc_pid_mountinfo(5))
    for line in content("/proc/self/mountinfo") {
      let fields = split(line, at: " ")
      guard let dash = fields.firstIndex(of: "-"), dash > 5, dash + 3 < fields.count else { continue }
      let mount = Mount(
        type: fields[dash + 1], options: split(fields[5], at: ","),
        superOptions: split(fields[dash + 3], at: ","))
      if fields[2] == "\(major):\(minor)" { return mount }
      let isAbove = fields[4] == "/" || path == fields[4] || path.hasPrefix(fields[4] + "/")
      if isAbove, fields[4].count >= found?.length ?? 0 { found = (fields[4].count, mount) }
    }
    return found?.mount
  }

  /// The lines of a file of the system; none if it cannot be read.
  private static func content(_ path: String) -> [String] {
    guard let file = try? Descriptor.reading(Array(path.utf8), waiting: false),
      let bytes = try? file.readAll(limit: 1 << 20)
    else { return [] }
    return split(String(decoding: bytes, as: UTF8.self), at: "\n")
  }

  private static func split(_ text: String, at separator: Unicode.Scalar) -> [String] {
    text.unicodeScalars.split(separator: separator).map { String($0) }
  }

  private static func text<Characters>(_ characters: Characters) -> String {
    unsafe withUnsafeBytes(of: characters) { unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
  }
}

import SyncTestSupport

@testable import SyncStore

/// The content of a directory tree: names and file contents.
struct PowerState {
  /// Inode by path.
  var inodes: [String: UInt64] = [:]
  /// Whether an inode is a directory.
  var kinds: [UInt64: Bool] = [:]
  /// Bytes by inode of a file, if they were read.
  var contents: [UInt64: [UInt8]] = [:]

  init(of path: String, contents: Bool = true) throws {
    try read(path, contents)
  }

  private mutating func read(_ path: String, _ readsContents: Bool) throws {
    let disk = DiskStorage()
    guard let status = try disk.status(path) else { return }
    inodes[path] = status.inode
    kinds[status.inode] = status.kind == .directory
    if status.kind == .directory {
      for name in try disk.list(path) { try read(path + "/" + name, readsContents) }
    } else if readsContents {
      contents[status.inode] = try disk.contents(of: path, limit: 1 << 24)
    }
  }

  /// Names and kinds as text.
  var lines: [String] {
    inodes.sorted { $0.key < $1.key }.map { "\($0.value) \(kinds[$0.value] == true ? "d" : "f") \($0.key)" }
  }

  init(lines: ArraySlice<Substring>) throws {
    for line in lines {
      let parts = line.split(separator: " ", maxSplits: 2)
      guard parts.count == 3, let inode = UInt64(parts[0]) else { throw StoreError(.damaged, "\(line)") }
      inodes[String(parts[2])] = inode
      kinds[inode] = parts[1] == "d"
    }
  }

  private static func isIn(_ directory: String, _ path: String) -> Bool {
    path.hasPrefix(directory + "/") && !path.dropFirst(directory.count + 1).contains("/")
  }

  /// Adopts the names of one directory from `other`.
  mutating func take(namesOf directory: String, from other: PowerState) {
    inodes = inodes.filter { !Self.isIn(directory, $0.key) }
    for (path, inode) in other.inodes where Self.isIn(directory, path) {
      inodes[path] = inode
      kinds[inode] = other.kinds[inode]
    }
  }

  /// Makes the tree below `path` equal to `content` (nil for a directory). Files keep their inodes.
  static func lay(_ content: [String: [UInt8]?], at path: String) throws {
    let disk = DiskStorage()
    func clear(_ directory: String) throws {
      for name in try disk.list(directory) {
        let path = directory + "/" + name
        let isDirectory = try disk.status(path)?.kind == .directory
        guard let kept = content[path], (kept == nil) == isDirectory else {
          _ = try disk.removeTree(path)
          continue
        }
        if isDirectory { try clear(path) }
      }
    }
    try clear(path)
    for (path, bytes) in content.sorted(by: { $0.key < $1.key }) {
      guard let bytes else {
        if try disk.status(path) == nil { _ = try disk.createDirectory(path) }
        continue
      }
      let file = try disk.open(path, .openOrCreate)
      try file.resize(to: 0)
      try file.write(bytes, at: 0)
    }
  }
}

/// A possible moment of a power loss: the durable state, and the live state.
struct PowerCrash {
  let number: Int
  private let old: PowerState
  private let live: PowerState
  /// Started operations, and those that are durable in any case.
  let begun: Int
  let durable: Int

  init(number: Int, old: PowerState, live: PowerState, begun: Int, durable: Int) {
    (self.number, self.old, self.live, self.begun, self.durable) = (number, old, live, begun, durable)
  }

  private static let pageBytes = 4096

  /// Files and directories (nil) after the loss, where `choice` decides for each name, page and size whether
  /// the newer one reached the disk; a page in eight is torn.
  func content(_ choice: () -> Bool) -> [String: [UInt8]?] {
    var names = old.inodes
    // A renamed file has its old or new name; what it replaced is gone with the latter. A removed name may
    // return.
    let inodes = Set(old.inodes.values).union(live.inodes.values).sorted()
    for inode in inodes {
      let (before, after) = (Self.names(of: inode, in: old), Self.names(of: inode, in: live))
      guard before != after, choice() else { continue }
      for path in before where names[path] == inode {
        if after.isEmpty, let successor = live.inodes[path], successor != inode { continue }
        names[path] = nil
      }
      for path in after { names[path] = inode }
    }
    var bytes: [UInt64: [UInt8]] = [:]
    var content: [String: [UInt8]?] = [:]
    for (path, inode) in names.sorted(by: { $0.key < $1.key }) where isReachable(path, names) {
      // An SQLite table, which is derived from the files, is present completely or not at all.
      if path.contains("catalogue.sqlite") {
        if !path.hasSuffix("-shm"), let all = live.contents[inode] { content[path] = all }
        continue
      }
      if (live.kinds[inode] ?? old.kinds[inode]) == true {
        content[path] = .some(nil)
      } else {
        let mixed = bytes[inode] ?? mixed(inode, choice)
        bytes[inode] = mixed
        content[path] = mixed
      }
    }
    return content
  }

  private static func names(of inode: UInt64, in state: PowerState) -> [String] {
    state.inodes.filter { $0.value == inode }.keys.sorted()
  }

  private func isReachable(_ path: String, _ names: [String: UInt64]) -> Bool {
    guard let top = names.keys.min(), path != top else { return true }
    var parent = path
    while let slash = parent.lastIndex(of: "/") {
      parent = String(parent[..<slash])
      if parent == top { return true }
      if names[parent] == nil { return false }
    }
    return false
  }

  private func mixed(_ inode: UInt64, _ choice: () -> Bool) -> [UInt8] {
    let before = old.contents[inode] ?? []
    // Removed since: nothing is known about its unsynced data.
    guard let after = live.contents[inode], XXH3.hash64(after, seed: 0) != XXH3.hash64(before, seed: 0)
    else { return before }
    let size = before.count == after.count || choice() ? after.count : before.count
    var bytes = [UInt8](repeating: 0, count: size)
    for start in stride(from: 0, to: size, by: Self.pageBytes) {
      let end = min(start + Self.pageBytes, size)
      func copy(_ range: Range<Int>, from source: [UInt8]) {
        let range = range.clamped(to: 0..<source.count)
        bytes.replaceSubrange(range, with: source[range])
      }
      copy(start..<end, from: before)
      guard start < after.count else { continue }
      if choice() {
        copy(start..<end, from: after)
      } else if choice(), choice() {
        // Torn: the first sectors are the newer ones.
        copy(start..<min(start + 512 * (1 + (start >> 12) % 7), end), from: after)
      }
    }
    return bytes
  }
}

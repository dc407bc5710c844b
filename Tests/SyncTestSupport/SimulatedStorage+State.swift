import Glibc
import SyncStore

extension SimulatedStorage.State {
  mutating func make(_ kind: FileStatus.Kind) -> SimulatedNode {
    lastInode += 1
    return SimulatedNode(kind, inode: lastInode)
  }

  mutating func copy(_ node: SimulatedNode) -> SimulatedNode {
    lastInode += 1
    let copy = SimulatedNode(copyOf: node, inode: lastInode)
    for (name, child) in node.entries.sorted(by: { $0.key < $1.key }) {
      let childCopy = self.copy(child)
      childCopy.links = 1
      copy.entries[name] = childCopy
      copy.durableEntries[name] = childCopy
    }
    return copy
  }

  /// The node at `path`; nil if only the last component or a directory on the way is missing.
  func find(_ path: String) throws(StoreError) -> SimulatedNode? {
    var node = root
    for name in names(of: path) {
      guard node.kind == .directory else { throw failure("cannot go through it", path, ENOTDIR) }
      guard let next = node.entries[name] else { return nil }
      node = next
    }
    return node
  }

  func file(_ path: String) throws(StoreError) -> SimulatedNode {
    guard let node = try find(path), node.kind == .file else { throw failure("no such file", path, ENOENT) }
    return node
  }

  func parent(of path: String) throws(StoreError) -> (directory: SimulatedNode, name: String) {
    let all = names(of: path)
    guard let last = all.last else { throw failure("is the root", path, EEXIST) }
    guard let directory = try find("/" + all.dropLast().joined(separator: "/")) else {
      throw failure("its directory is missing", path, ENOENT)
    }
    guard directory.kind == .directory else { throw failure("cannot go through it", path, ENOTDIR) }
    return (directory, last)
  }

  /// Adds or removes nodes as one change: live at once, durable later.
  mutating func change(_ changes: [(path: String, node: SimulatedNode?)]) throws(StoreError) {
    var effects: [(directory: SimulatedNode, name: String, node: SimulatedNode?)] = []
    for (path, node) in changes {
      let (directory, name) = try parent(of: path)
      effects.append((directory, name, node))
    }
    for effect in effects {
      effect.node?.links += 1
      effect.directory.entries[effect.name]?.links -= 1
    }
    for effect in effects {
      if let old = effect.directory.entries[effect.name] { release(old) }
      effect.directory.entries[effect.name] = effect.node
    }
    pending.append(SimulatedStorage.Operation(effects: effects))
  }

  /// Makes every change of `directory` durable, with the changes they depend on.
  mutating func makeDurable(_ directory: SimulatedNode) {
    var chosen = Set<Int>()
    var entries = Set<SimulatedStorage.Entry>()
    for index in pending.indices.reversed() {
      let operation = pending[index]
      guard operation.effects.contains(where: { $0.directory === directory }) || operation.touches(entries)
      else { continue }
      chosen.insert(index)
      entries.formUnion(operation.effects.map { SimulatedStorage.Entry($0) })
    }
    for index in pending.indices where chosen.contains(index) { apply(pending[index]) }
    pending = pending.indices.filter { !chosen.contains($0) }.map { pending[$0] }
  }

  /// Makes every change of every directory durable.
  mutating func makeDurable() {
    for operation in pending { apply(operation) }
    pending = []
  }

  /// Decides which non-durable directory changes survive a power loss.
  mutating func resolvePending(_ nodes: [(path: String, node: SimulatedNode)], _ survives: (String) -> Bool) {
    var paths: [UInt64: String] = [:]
    for (path, node) in nodes { paths[node.inode] = path }
    var lost = Set<SimulatedStorage.Entry>()
    for operation in pending {
      let entries = operation.effects.map { SimulatedStorage.Entry($0) }
      let last = operation.effects[operation.effects.count - 1]
      let path = (paths[last.directory.inode] ?? "") + "/" + last.name
      if !operation.touches(lost), survives(path) {
        apply(operation)
      } else {
        lost.formUnion(entries)
      }
    }
    pending = []
  }

  /// Every node reachable through either image, with its path, in path order.
  func allNodes() -> [(path: String, node: SimulatedNode)] {
    var found: [(path: String, node: SimulatedNode)] = []
    var seen = Set<UInt64>()
    func visit(_ node: SimulatedNode, _ path: String) {
      guard seen.insert(node.inode).inserted else { return }
      found.append((path, node))
      for (name, child) in node.entries.sorted(by: { $0.key < $1.key }) { visit(child, path + "/" + name) }
      for (name, child) in node.durableEntries.sorted(by: { $0.key < $1.key }) {
        visit(child, path + "/" + name)
      }
    }
    visit(root, "")
    return found
  }

  /// Every directory that currently has a name, with its path.
  func liveDirectories() -> [(path: String, node: SimulatedNode)] {
    var found: [(path: String, node: SimulatedNode)] = [("", root)]
    var next = 0
    while next < found.count {
      let (path, node) = found[next]
      next += 1
      for (name, child) in node.entries.sorted(by: { $0.key < $1.key }) where child.kind == .directory {
        found.append((path + "/" + name, child))
      }
    }
    return found
  }

  func countLinks() {
    let nodes = allNodes().map { $0.node }
    for node in nodes { node.links = 0 }
    for node in nodes { for child in node.entries.values { child.links += 1 } }
    root.links = 1
  }

  mutating func syncFails(_ path: String) -> Bool {
    guard let index = failingSyncs.firstIndex(where: { $0.path == path }) else { return false }
    if !failingSyncs[index].forever { failingSyncs.remove(at: index) }
    failures += 1
    return true
  }

  /// Allocates space up to `end`. Returns the end of the allocated space.
  mutating func reserve(_ node: SimulatedNode, upTo end: Int) -> Int {
    let needed = SimulatedMemory.rounded(end) - node.allocated
    guard needed > 0 else { return end }
    let available = min(max(free ?? needed, 0), node.limit - node.allocated)
    let granted = min(needed, available / SimulatedMemory.pageBytes * SimulatedMemory.pageBytes)
    node.allocated += granted
    if granted < needed { failures += 1 }
    if let left = free { free = left - granted }
    return min(end, node.allocated)
  }

  /// Frees the space beyond the file's size.
  mutating func trim(_ node: SimulatedNode) {
    let kept = SimulatedMemory.rounded(node.size)
    guard node.allocated > kept else { return }
    if let left = free { free = left + node.allocated - kept }
    node.allocated = kept
  }

  private mutating func release(_ node: SimulatedNode) {
    guard node.links == 0, let left = free else { return }
    free = left + node.allocated
    node.allocated = 0
  }

  private func apply(_ operation: SimulatedStorage.Operation) {
    for effect in operation.effects { effect.directory.durableEntries[effect.name] = effect.node }
  }

  private func names(of path: String) -> [String] {
    path.split(separator: "/").map(String.init).filter { name in
      precondition(name != "..", "the simulated storage does not go up: \(path)")
      return name != "."
    }
  }
}

extension SimulatedNode {
  var status: FileStatus {
    FileStatus(
      kind: kind, size: size, links: links,
      identity: FileIdentity(inode: inode, fileSystem: 1, birth: inode * 1_000_000_007), owner: owner,
      permissions: kind == .directory ? 0o700 : 0o600)
  }
}

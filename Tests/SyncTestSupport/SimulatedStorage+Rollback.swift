package import SyncStore

extension SimulatedStorage {
  /// The bytes of all files below a directory, by path.
  package func files(below directory: String) throws(StoreError) -> [String: [UInt8]] {
    var files: [String: [UInt8]] = [:]
    for name in try list(directory) {
      let path = directory + "/" + name
      guard let status = try status(path) else { continue }
      if status.kind == .directory {
        files.merge(try self.files(below: path)) { $1 }
      } else {
        files[path] = try open(path, .readOnly).read(status.size, at: 0)
      }
    }
    return files
  }

  /// Restores earlier file contents under the existing inodes, durably: an in-place rollback of the machine,
  /// which no check at opening can detect.
  package func restore(_ files: [String: [UInt8]]) throws(StoreError) {
    for (path, bytes) in files.sorted(by: { $0.key < $1.key }) where try !holds(bytes, at: path) {
      let file = try open(path, .openOrCreate)
      try file.resize(to: 0)
      try file.allocate(to: bytes.count)
      try file.write(bytes, at: 0)
      try file.sync()
    }
    syncDirectories()
  }

  private func holds(_ bytes: [UInt8], at path: String) throws(StoreError) -> Bool {
    try locked { state throws(StoreError) in try state.find(path)?.holds(bytes) ?? false }
  }

  /// Makes every entry of every directory durable.
  package func syncDirectories() {
    guarded.withLock { $0.state.makeDurable() }
  }

  /// Copies the files below a directory of another storage to `destination`, under new inodes and durable: a
  /// copied directory or a restored backup.
  package func install(_ files: [String: [UInt8]], from source: String, at destination: String)
    throws(StoreError)
  {
    var made: Set<String> = []
    for (path, bytes) in files.sorted(by: { $0.key < $1.key }) {
      let target = destination + path.dropFirst(source.count)
      var directory = ""
      for name in target.split(separator: "/").dropLast() {
        directory += "/" + name
        guard made.insert(directory).inserted else { continue }
        _ = try createDirectory(directory)
      }
      let file = try open(target, .create)
      try file.allocate(to: bytes.count)
      try file.write(bytes, at: 0)
      try file.sync()
    }
    for directory in made.sorted() { try syncDirectory(directory) }
    try syncDirectory("/")
  }

  /// The disk of a cloned machine: kernel and disk content of this moment, under the same inodes. No process
  /// of the clone has anything open.
  package func cloned() throws(StoreError) -> SimulatedStorage {
    let clone = SimulatedStorage()
    // The locks are taken one after the other: the nodes handed over belong to the clone alone.
    let image = try locked { state throws(StoreError) in Image(state) }
    try clone.locked { state throws(StoreError) in
      state.root = image.root
      (state.lastInode, state.type, state.free, state.lies) = (
        image.lastInode, image.type, image.free, image.lies
      )
      state.pending = image.pending
      state.countLinks()
    }
    return clone
  }
}

/// A copy of the whole storage.
private struct Image: @unchecked Sendable {
  // Its nodes are not shared.
  let root: SimulatedNode
  let pending: [SimulatedStorage.Operation]
  let lastInode: UInt64
  let type: UInt64
  let free: Int?
  let lies: Bool

  init(_ state: SimulatedStorage.State) {
    var copies: [UInt64: SimulatedNode] = [:]
    for (_, node) in state.allNodes() { copies[node.inode] = SimulatedNode(imageOf: node) }
    for operation in state.pending {
      for effect in operation.effects {
        for node in [effect.directory, effect.node].compactMap({ $0 }) where copies[node.inode] == nil {
          copies[node.inode] = SimulatedNode(imageOf: node)
        }
      }
    }
    func map(_ entries: StringDictionary<SimulatedNode>) -> StringDictionary<SimulatedNode> {
      StringDictionary(first: entries.compactMap { name, node in copies[node.inode].map { (name, $0) } })
    }
    for (_, node) in state.allNodes() {
      copies[node.inode]?.entries = map(node.entries)
      copies[node.inode]?.durableEntries = map(node.durableEntries)
    }
    root = copies[state.root.inode]!
    let same = root
    pending = state.pending.map { operation in
      SimulatedStorage.Operation(
        effects: operation.effects.map { effect in
          (
            directory: copies[effect.directory.inode] ?? same, name: effect.name,
            node: effect.node.flatMap { copies[$0.inode] }
          )
        })
    }
    (lastInode, type, free, lies) = (state.lastInode, state.type, state.free, state.lies)
  }
}

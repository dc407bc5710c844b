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

  /// Puts files back as they were, under the inodes they have: a machine rolled back in place, which no check at opening
  /// can see.
  package func restore(_ files: [String: [UInt8]]) throws(StoreError) {
    for (path, bytes) in files {
      let file = try open(path, .openOrCreate)
      try file.resize(to: 0)
      try file.allocate(to: bytes.count)
      try file.write(bytes, at: 0)
      try file.sync()
    }
  }

  /// Puts the files below a directory of another storage here, below `destination`, under new inodes and durable: a copied
  /// directory, or a backup that is restored.
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
}

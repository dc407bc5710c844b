/// The regular files below a directory.
///
/// Symbolic links are not followed and devices, pipes and sockets are not opened: both are counted, so that the caller
/// can say what was left out.
struct TreeWalk {
  struct File: Equatable {
    /// Relative to the directory, parts joined by "/".
    let path: [UInt8]
    let size: UInt64
  }

  /// In the order of their paths, directory by directory.
  private(set) var files: [File] = []
  /// Links and special files that were left out.
  private(set) var skipped = 0
  /// The sum of all sizes.
  var totalBytes: UInt64 { files.reduce(0) { $0 + $1.size } }

  /// Walks through everything below `root`.
  init(_ root: Descriptor) throws(Failure) {
    var waiting: [[UInt8]] = [[]]
    while let relative = waiting.popLast() {
      let directory = relative.isEmpty ? root : try root.directory(relative)
      var below: [[UInt8]] = []
      for name in try directory.names() {
        let path = relative.isEmpty ? name : Descriptor.joined(relative, name)
        // Nothing there any more: it was removed while we looked.
        guard let (kind, size) = try directory.kind(of: name) else { continue }
        switch kind {
        case .file: files.append(File(path: path, size: size))
        case .directory: below.append(path)
        case .link, .other: skipped += 1
        }
      }
      waiting += below.reversed()
    }
  }
}

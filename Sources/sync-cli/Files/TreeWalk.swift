/// The regular files below a directory.
///
/// Symbolic links are not followed and devices, pipes and sockets are not opened; both are counted, so that
/// the caller can report what was left out.
struct TreeWalk {
  struct File: Equatable {
    /// Relative to the directory, components joined by "/".
    let path: [UInt8]
    let size: UInt64
  }

  /// In path order, directory by directory.
  private(set) var files: [File] = []
  /// Links and special files, which are left out.
  private(set) var leftOut: [[UInt8]] = []
  /// Their number.
  var skipped: Int { leftOut.count }
  private let filter: PathFilter
  /// Directories that could not be listed, and entries that could not be examined.
  private(set) var failures: [Failure] = []
  /// The sum of all sizes.
  var totalBytes: UInt64 { files.reduce(0) { $0 + $1.size } }

  /// Walks everything below `root`, which must be readable itself, except what the filter excludes.
  init(_ root: Descriptor, _ filter: PathFilter = PathFilter()) throws(Failure) {
    self.filter = filter
    var waiting: [[UInt8]] = [[]]
    while let relative = waiting.popLast() {
      if relative.isEmpty {
        waiting += try list(root, relative).reversed()
        continue
      }
      do throws(Failure) {
        waiting += try list(try root.directory(relative), relative).reversed()
      } catch {
        failures.append(Failure(error.code, "import: \(error.message)"))
      }
    }
  }

  /// Adds the files of `directory` and returns its subdirectories.
  private mutating func list(_ directory: Descriptor, _ relative: [UInt8]) throws(Failure) -> [[UInt8]] {
    var below: [[UInt8]] = []
    for name in try directory.names() {
      let path = relative.isEmpty ? name : Descriptor.joined(relative, name)
      do throws(Failure) {
        // The entry was removed during the walk.
        guard let (kind, size) = try directory.kind(of: name) else { continue }
        if filter.excludes(path, isDirectory: kind == .directory) { continue }
        switch kind {
        case .file: files.append(File(path: path, size: size))
        case .directory: below.append(path)
        case .link, .other: leftOut.append(path)
        }
      } catch {
        failures.append(Failure(error.code, "import: \(error.message)"))
      }
    }
    return below
  }
}

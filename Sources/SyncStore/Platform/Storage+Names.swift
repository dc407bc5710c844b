/// Directory names: canonical form, and making them durable.
extension Storage {
  /// The canonical path of a directory named by the caller: locks, replacements and files next to it use this
  /// one path, wherever a link leads later.
  ///
  /// A symbolic link is followed; trailing slashes and dots are removed, so that the part before the last
  /// slash is the parent directory.
  package func canonicalPath(of path: String) throws(StoreError) -> String {
    // Bytes, as for the kernel: a slash followed by a combining character is one, too.
    var rest = path.utf8[...]
    while rest.count > 1 {
      if rest.last == Self.slash {
        rest.removeLast()
      } else if rest.last == UInt8(ascii: "."), rest.dropLast().last == Self.slash {
        rest.removeLast(2)
      } else {
        break
      }
    }
    let name = rest.isEmpty && !path.isEmpty ? "/" : String(Substring(rest))
    let last = Self.lastName(of: name)
    if last == "." || last == "..", isFileSystem { return SystemCall.absolutePath(name) }
    return try followingLink(name)
  }

  /// Makes the name of an existing directory durable. No effect on a mount point, whose name is in another
  /// file system.
  package func syncParentDirectory(of path: String) throws(StoreError) {
    guard try parentStatus(path)?.fileSystem == status(path)?.fileSystem else { return }
    do throws(StoreError) { try syncDirectory(Self.directory(of: path)) } catch {
      // A service may lack permission to read the parent directory, and not every file system can sync one
      // directory.
      guard error.errno == SystemCall.permissionDenied || error.errno == SystemCall.invalidArgument else {
        throw error
      }
      try syncFileSystem(path)
    }
  }

  /// A fingerprint of the directory's name: it changes if the directory or its parent is renamed.
  package func nameFingerprint(of path: String) throws(StoreError) -> UInt64 {
    let above = try parentStatus(path)
    var writer = ByteWriter()
    writer.write(above?.fileSystem ?? 0)
    writer.write(above?.inode ?? 0)
    writer.write(raw: Self.lastName(of: path).utf8)
    return XXH3.hash64(writer.bytes, seed: 0)
  }

  /// The part after the last slash.
  private static func lastName(of path: String) -> Substring {
    let bytes = path.utf8
    return bytes.lastIndex(of: slash).map { path[bytes.index(after: $0)...] } ?? path[...]
  }

  /// Status of the parent directory of `path`.
  private func parentStatus(_ path: String) throws(StoreError) -> FileStatus? {
    let directory = Self.directory(of: path)
    let found = try status(directory)
    return found?.kind == .link ? try status(followingLink(directory)) : found
  }
}

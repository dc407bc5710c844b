/// By which name a directory is found: how it is said, and how it is made to last.
extension Storage {
  /// The place of a directory that a caller has named: what is locked, replaced and put beside it goes by this one name, wherever a
  /// link leads later. A symbolic link is followed; slashes and dots at the end are left out, so that what comes before the last
  /// slash is the directory that the name lies in.
  package func canonicalPath(of path: String) throws(StoreError) -> String {
    // Bytes, as for the kernel: a slash that a combining character follows is one, too.
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

  /// Makes the name durable by which a directory, which is there, is found. Nothing is done for the place where a file system is mounted:
  /// that name is not in it.
  package func syncParentDirectory(of path: String) throws(StoreError) {
    guard try parentStatus(path)?.fileSystem == status(path)?.fileSystem else { return }
    do throws(StoreError) { try syncDirectory(Self.directory(of: path)) } catch {
      // A service need not be allowed to read what its directory lies in, and not every file system makes one directory durable.
      guard error.errno == SystemCall.permissionDenied || error.errno == SystemCall.invalidArgument else {
        throw error
      }
      try syncFileSystem(path)
    }
  }

  /// Which name a directory has, as one word: another one if it, or what it lies in, gets another name.
  package func nameFingerprint(of path: String) throws(StoreError) -> UInt64 {
    let above = try parentStatus(path)
    var writer = ByteWriter()
    writer.write(above?.fileSystem ?? 0)
    writer.write(above?.inode ?? 0)
    writer.write(raw: Self.lastName(of: path).utf8)
    return XXH3.hash64(writer.bytes, seed: 0)
  }

  /// What comes behind the last slash.
  private static func lastName(of path: String) -> Substring {
    let bytes = path.utf8
    return bytes.lastIndex(of: slash).map { path[bytes.index(after: $0)...] } ?? path[...]
  }

  /// What is known of the directory that the name of `path` lies in.
  private func parentStatus(_ path: String) throws(StoreError) -> FileStatus? {
    let directory = Self.directory(of: path)
    let found = try status(directory)
    return found?.kind == .link ? try status(followingLink(directory)) : found
  }
}

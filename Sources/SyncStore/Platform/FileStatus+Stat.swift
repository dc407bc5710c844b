internal import Glibc

extension FileStatus {
  /// From the result of stat(2).
  init(_ answer: stat) {
    self.init(
      kind: Kind(mode: answer.st_mode), size: Int(answer.st_size), links: Int(answer.st_nlink),
      identity: FileIdentity(inode: UInt64(answer.st_ino), fileSystem: UInt64(answer.st_dev), birth: 0),
      owner: answer.st_uid, permissions: answer.st_mode & 0o7777)
  }
}

extension FileStatus.Kind {
  /// From the mode of stat(2).
  init(mode: UInt32) {
    self =
      switch mode & S_IFMT {
      case S_IFREG: .file
      case S_IFDIR: .directory
      case S_IFLNK: .link
      default: .other
      }
  }
}

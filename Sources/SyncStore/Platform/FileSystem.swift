/// Properties of a file system: free space, and which guarantees it gives.
package struct FileSystem: Sendable, Equatable {
  /// The magic number of its type (`statfs`).
  package var type: UInt64
  /// Its free space for its user, in bytes.
  package var freeBytes: UInt64
  /// Whether it is mounted read-only.
  package var isReadOnly: Bool

  /// All fields.
  package init(type: UInt64, freeBytes: UInt64, isReadOnly: Bool) {
    (self.type, self.freeBytes, self.isReadOnly) = (type, freeBytes, isReadOnly)
  }

  /// Name of the network file system; nil if it is none. Between machines neither locks nor mapped memory are
  /// reliable (F98).
  ///
  /// FUSE is not included: most of what it carries lies on one machine, and its type does not tell.
  package var network: String? {
    switch type {
    case 0x6969: "NFS"
    case 0x517B, 0xFF53_4D42, 0xFE53_4D42: "SMB"
    case 0x5346_414F, 0x6B41_4653: "AFS"
    case 0x00C3_6400: "Ceph"
    case 0x0102_1997: "9P"
    case 0x7375_7245: "Coda"
    case 0x564C: "NCP"
    case 0x0BD0_0BD0: "Lustre"
    case 0x4750_4653: "GPFS"
    case 0x7461_636F: "OCFS2"
    case 0x0116_1970: "GFS2"
    case 0x1983_0326: "BeeGFS"
    case 0x2003_0528: "OrangeFS"
    case 0x786F_4256: "a folder of the host"
    default: nil
    }
  }

  /// The type of overlayfs.
  static let overlay: UInt64 = 0x794C_7630

  /// Whether it writes each page to a new place. Then there may be no space for a page that was allocated,
  /// and a store to mapped memory can only report that by SIGBUS (F26).
  private var copiesOnWrite: Bool {
    switch type {
    case 0x9123_683E,  // btrfs
      0x2FC1_2FC1,  // ZFS
      0xCA45_1A4E,  // bcachefs
      0x3434,  // NILFS
      0xF2F5_2010,  // F2FS, which writes a log
      0x6573_5546,  // FUSE: the file system under it is not known
      Self.overlay:  // nor is that of the upper layer
      true
    default: false
    }
  }

  /// Whether a store to mapped memory can fail although the bytes were allocated.
  package var mappedStoresMayFail: Bool { copiesOnWrite || network != nil }
}

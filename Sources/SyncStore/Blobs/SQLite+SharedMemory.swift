internal import CSQLite
private import CLinux
private import Glibc

/// Finds disk space for the pages of `-shm`, the index of a write-ahead log that SQLite maps into memory, before SQLite writes to them.
///
/// SQLite writes one byte to each page of 4096 bytes. Where blocks are smaller, as those of a small ext4 file system, that allocates
/// only the last block of each page, and on a full disk the first store into the mapping raises SIGBUS, which ends the process.
/// `MADV_POPULATE_WRITE` (Linux 5.14) allocates what is missing and reports an error instead. Older kernels refuse it: there it is as
/// SQLite leaves it.
///
/// This is one of the few files that use `unsafe`: SQLite's methods of files are tables of C functions.
@safe enum SharedMemoryPages {
  /// SQLite's own file system at the first use; nil if there is none.
  nonisolated(unsafe) static let fileSystem: UnsafeMutablePointer<sqlite3_vfs>? = unsafe sqlite3_vfs_find(nil)

  /// Where SQLite's methods of files are, and those that take their place. It has one table for all files of a kind of locks: this is of
  /// the kind that is met first, and files of another one keep their own.
  private struct Methods {
    let own: UInt
    let watching: UInt
  }

  private static let methods = LockedField<Methods?>(nil)

  /// Has the shared memory of an open database go through `map`.
  static func watch(_ file: UnsafeMutablePointer<sqlite3_file>) {
    guard let own = unsafe file.pointee.pMethods, unsafe own.pointee.iVersion >= 2 else { return }
    let all = methods.withLock { methods in
      if let methods { return methods }
      // For as long as the process lives: files refer to it.
      let watching = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
      unsafe watching.initialize(to: own.pointee)
      unsafe watching.pointee.xShmMap = { unsafe SharedMemoryPages.map($0, $1, $2, $3, $4) }
      let made = Methods(own: UInt(bitPattern: own), watching: UInt(bitPattern: watching))
      methods = made
      return made
    }
    if all.own == UInt(bitPattern: own) {
      unsafe file.pointee.pMethods = UnsafePointer(bitPattern: all.watching)
    }
  }

  /// `xShmMap` of SQLite, and space for all of the region.
  private static func map(
    _ file: UnsafeMutablePointer<sqlite3_file>?, _ region: Int32, _ bytes: Int32, _ extends: Int32,
    _ mapped: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> Int32 {
    guard let own = methods.withLock({ $0?.own }),
      let map = unsafe UnsafePointer<sqlite3_io_methods>(bitPattern: own)?.pointee.xShmMap
    else { return SQLITE_IOERR }
    let code = unsafe map(file, region, bytes, extends, mapped)
    // An existing region, too: it may have been created when the disk was full already.
    guard code == SQLITE_OK, let start = unsafe mapped?.pointee else { return code }
    let page = sysconf(Int32(_SC_PAGESIZE))
    let offset = UInt(bitPattern: start) & UInt(page - 1)
    guard unsafe sync_populate(start - Int(offset), UInt64(bytes) + UInt64(offset)) != 0 else { return code }
    guard errno == EFAULT || errno == ENOSPC else { return code }
    // SQLite uses a region that it was given, whatever the code says.
    unsafe mapped?.pointee = nil
    return SQLITE_FULL
  }
}

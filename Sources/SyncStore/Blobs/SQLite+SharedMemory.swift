internal import CSQLite
private import CLinux
private import Glibc

/// Allocates disk blocks for the pages of `-shm`, the mapped index of SQLite's write-ahead log, before SQLite
/// writes to them.
///
/// SQLite writes one byte to each page of 4096 bytes. On file systems with smaller blocks, such as a small
/// ext4, that allocates only the last block of each page, and on a full disk the first store into the mapping
/// raises SIGBUS, which kills the process. `sync_allocate_mapped` allocates the missing blocks and reports an
/// error instead.
///
/// This is one of the few files that use `unsafe`: SQLite's file methods are tables of C functions.
@safe enum SharedMemoryPages {
  /// SQLite's default VFS, as of the first use; nil if there is none.
  nonisolated(unsafe) static let fileSystem: UnsafeMutablePointer<sqlite3_vfs>? = unsafe sqlite3_vfs_find(nil)

  /// Addresses of SQLite's file methods, and of the table that replaces them.
  ///
  /// SQLite has one table per locking style: this is the first one seen, and files of another style keep
  /// their own.
  private struct Methods {
    let own: UInt
    let watching: UInt
  }

  private static let methods = LockedField<Methods?>(nil)

  /// Routes shared memory mappings of an open database through `map`.
  static func watch(_ file: UnsafeMutablePointer<sqlite3_file>) {
    guard let own = unsafe file.pointee.pMethods, unsafe own.pointee.iVersion >= 2 else { return }
    let all = methods.withLock { methods in
      if let methods { return methods }
      // Never freed: open files refer to it.
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

  /// SQLite's `xShmMap`, followed by allocating the whole region.
  private static func map(
    _ file: UnsafeMutablePointer<sqlite3_file>?, _ region: Int32, _ bytes: Int32, _ extends: Int32,
    _ mapped: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> Int32 {
    guard let own = methods.withLock({ $0?.own }),
      let map = unsafe UnsafePointer<sqlite3_io_methods>(bitPattern: own)?.pointee.xShmMap
    else { return SQLITE_IOERR }
    let code = unsafe map(file, region, bytes, extends, mapped)
    // Also for an existing region: it may have been created when the disk was already full.
    guard code == SQLITE_OK, let start = unsafe mapped?.pointee else { return code }
    let page = sysconf(Int32(_SC_PAGESIZE))
    let offset = UInt(bitPattern: start) & UInt(page - 1)
    guard unsafe sync_allocate_mapped(start - Int(offset), UInt64(bytes) + UInt64(offset)) != 0 else {
      return code
    }
    guard errno == EFAULT || errno == ENOSPC else { return code }
    // SQLite uses a returned region regardless of the result code.
    unsafe mapped?.pointee = nil
    return SQLITE_FULL
  }
}

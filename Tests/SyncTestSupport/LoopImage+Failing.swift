import Foundation
import Glibc
package import SyncStore

// Ways to make a mounted file system fail.
extension LoopImage {
  /// From now on nothing reaches the disk, as after pulling it out: EXT4_IOC_SHUTDOWN without flushing the
  /// log.
  package func shutDown() throws {
    typealias Control = @convention(c) (Int32, UInt, UnsafeMutableRawPointer) -> Int32
    // ioctl is variadic, and not imported.
    guard let symbol = unsafe dlsym(nil, "ioctl") else { throw StoreError(.inputOutput, "no ioctl") }
    let descriptor = unsafe open(path, O_RDONLY | O_DIRECTORY)
    defer { close(descriptor) }
    var flags: UInt32 = 2
    let control = unsafe unsafeBitCast(symbol, to: Control.self)
    guard unsafe control(descriptor, 0x8004_587D, &flags) == 0 else {
      throw StoreError(.inputOutput, "cannot shut it down", path: path, errno: errno)
    }
  }

  /// Truncates the device to that many bytes: reads and writes beyond them are device errors.
  package func shrink(to bytes: Int) throws {
    guard let device else { throw StoreError(.inputOutput, "it is not mounted", path: path) }
    try DiskStorage().open(image, .readWrite).resize(to: bytes)
    guard Self.run(["losetup", "--set-capacity", "/dev/" + device]) else {
      throw StoreError(.inputOutput, "cannot shrink it", path: path)
    }
  }

  /// Drops the page cache of a mapped file. Returns false if the kernel kept it.
  package func forget(_ bytes: Range<Int>, of file: String, _ mapping: Mapping) -> Bool {
    let descriptor = unsafe open(file, O_RDONLY)
    defer { close(descriptor) }
    let dropped = unsafe mapping.withPointer(bytes.lowerBound, to: UInt8.self) {
      unsafe madvise($0, bytes.count, MADV_DONTNEED)
    }
    return dropped == 0 && fsync(descriptor) == 0
      && posix_fadvise(descriptor, bytes.lowerBound, bytes.count, POSIX_FADV_DONTNEED) == 0
  }
}

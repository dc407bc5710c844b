import Foundation
import Glibc
package import SyncStore

// How a mounted file system is made to fail.
extension LoopImage {
  /// From now on nothing reaches the disk, as if it had been pulled out: EXT4_IOC_SHUTDOWN without flushing the log.
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

  /// From now on the disk has only so many bytes: reading or writing behind them is an error of the device.
  package func shrink(to bytes: Int) throws {
    guard let device else { throw StoreError(.inputOutput, "it is not mounted", path: path) }
    try DiskStorage().open(image, .readWrite).resize(to: bytes)
    guard Self.run(["losetup", "--set-capacity", "/dev/" + device]) else {
      throw StoreError(.inputOutput, "cannot shrink it", path: path)
    }
  }

  /// Lets the kernel forget what it holds in memory of a mapped file. False if it did not.
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

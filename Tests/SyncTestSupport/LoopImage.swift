import Foundation
import Glibc
import SyncStore

/// A real file system in a file, mounted for the lifetime of the object, to test a full, failing or read-only
/// disk. Type "tmpfs" lies in memory. Needs the right to mount.
package final class LoopImage: Sendable {
  /// Mount point: a directory owned by the calling user.
  package let path: String
  /// The image file. It keeps everything ever written, unless it was overwritten since.
  package let image: String
  private let type: String
  private let options: String
  private let isThin: Bool
  private let directory = TemporaryDirectory()

  /// Whether this process can mount an image.
  package static let isAvailable: Bool = geteuid() == 0 && (try? LoopImage(megabytes: 8)) != nil

  /// Whether this process can mount an image of this type.
  package static func isAvailable(_ type: String) -> Bool {
    isAvailable && (try? LoopImage(megabytes: smallest[type] ?? 32, type: type)) != nil
  }

  /// The smallest size in MiB that `mkfs` accepts.
  private static let smallest = ["btrfs": 120, "xfs": 320]

  /// A new file system of `megabytes` MiB. `make` are extra arguments of `mkfs`, `options` those of `mount`.
  /// A `thin` one has only that many MiB of real blocks; exceeding them fails at writeback.
  package init(
    megabytes: Int, type: String = "ext4", make: [String] = [], options: String = "loop", thin: Int? = nil
  ) throws {
    isThin = thin != nil
    path = directory.path + "/mounted"
    image = directory.path + (thin == nil ? "/image" : "/pool/image")
    self.type = type
    self.options = type == "tmpfs" ? "size=\(megabytes)m" : options
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    if let thin {
      try FileManager.default.createDirectory(atPath: pool, withIntermediateDirectories: true)
      guard Self.run(["mount", "-t", "tmpfs", "-o", "size=\(thin)m", "tmpfs", pool]) else {
        throw StoreError(.inputOutput, "cannot mount it", path: pool)
      }
    }
    try DiskStorage().open(image, .create).resize(to: megabytes << 20)
    // No blocks reserved for the superuser.
    guard
      type == "tmpfs"
        || Self.run(
          ["mkfs.\(type)", "-q"] + (type == "ext4" ? ["-F", "-m", "0"] : ["-f"])
            + (isThin ? ["-b", "4096"] : []) + make + [image])
    else { throw StoreError(.inputOutput, "cannot make the file system", path: image) }
    try mount()
    unsafe chmod(path, 0o700)
  }

  private func mount() throws {
    guard Self.run(["mount", "-t", type, "-o", options, image, path]) else {
      throw StoreError(.inputOutput, "cannot mount it", path: image)
    }
    if isThin { try limitRequests() }
  }

  /// Limits requests to one page. The loop driver ignores short writes to its file and reports success: with
  /// larger requests a full thin disk would confirm syncs of data that it has lost.
  private func limitRequests() throws {
    let failure = StoreError(.inputOutput, "cannot limit the requests of its device", path: image)
    guard let device, let file = unsafe fopen("/sys/block/\(device)/queue/max_sectors_kb", "w") else {
      throw failure
    }
    unsafe fputs("4", file)
    guard unsafe fclose(file) == 0 else { throw failure }
  }

  /// Unmounts and remounts: afterwards only what reached the disk is visible. No file of it may be open.
  /// `between` runs while it is unmounted.
  package func mountAgain(between: () throws -> Void = {}) throws {
    // A thread inside sync may close the last file a moment after its error was seen.
    let deadline = SystemCall.monotonicMilliseconds() + 10_000
    while !Self.run(["umount", path]) {
      guard SystemCall.monotonicMilliseconds() < deadline else {
        throw StoreError(.busy, "somebody has a file of it open", path: path)
      }
      usleep(10_000)
    }
    try between()
    try mount()
  }

  /// Whether `text` occurs anywhere on the device, deleted files included. Call `mountAgain` first: it writes
  /// everything back.
  package func holds(_ text: String) -> Bool { Self.run(["grep", "-q", "-a", "-F", text, image]) }

  /// Flushes the page cache to the disk, as the kernel does from time to time.
  package func writeBack() { Self.run(["sync", "-f", path]) }

  deinit {
    Self.run(["umount", "-l", path])
    if isThin { Self.run(["umount", "-l", pool]) }
  }

  private var pool: String { directory.path + "/pool" }

  /// Sets the number of MiB of real blocks of a thin image.
  package func thicken(megabytes: Int) throws {
    guard Self.run(["mount", "-o", "remount,size=\(megabytes)m", pool]) else {
      throw StoreError(.inputOutput, "cannot make it larger", path: pool)
    }
  }

  /// The block device below it, without "/dev/".
  package var device: String? {
    Self.output(["findmnt", "-n", "-o", "SOURCE", path]).map { String($0.dropFirst("/dev/".count)) }
  }

  /// Remounts with these options.
  @discardableResult
  package func remount(_ options: String) -> Bool { Self.run(["mount", "-o", "remount,\(options)", path]) }

  /// Fills the disk up to `bytes` of free space, with a file called "filler".
  package func fill(leaving bytes: Int = 0) throws {
    let file = try DiskStorage().open(path + "/filler", .openOrCreate)
    // Down to the last block: halve the request until nothing is left.
    var step = Int(try DiskStorage().freeBytes(path)) - bytes
    var size = try file.status().size
    while step >= 4096 {
      do {
        try file.allocate(to: size + step & ~4095)
        size += step & ~4095
        step = min(step, Int(try DiskStorage().freeBytes(path)) - bytes)
      } catch { step /= 2 }
    }
  }

  /// Frees the space that `fill` took.
  package func drain() {
    unsafe unlink(path + "/filler")
    // Some file systems free it only with the next commit.
    writeBack()
    if type == "btrfs" { Self.run(["btrfs", "balance", "start", "-dusage=0", path]) }
  }

  /// Runs a program found in the usual directories. Returns true if it exited with 0.
  @discardableResult
  package static func run(_ words: [String]) -> Bool { output(words) != nil }

  /// The program's output; nil if it failed.
  private static func output(_ words: [String]) -> String? {
    let result = try? ChildProcess.run(
      ["/usr/bin/env"] + words, environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"])
    return result?.code == 0 ? result?.text.trimmingCharacters(in: .whitespacesAndNewlines) : nil
  }
}

import Foundation
import Glibc
import SyncStore

/// A file system of its own in a file, mounted while it lives: one that is full, that fails or that turns read-only is then
/// a real one. One of type "tmpfs" lies in memory. Needs the rights to mount.
package final class LoopImage: Sendable {
  /// Where it is mounted: a directory of the caller's user.
  package let path: String
  /// The file that holds it: all that was ever written to it, unless something else was written over it since.
  package let image: String
  private let type: String
  private let options: String
  private let isThin: Bool
  private let directory = TemporaryDirectory()

  /// Can this process mount one?
  package static let isAvailable: Bool = geteuid() == 0 && (try? LoopImage(megabytes: 8)) != nil

  /// Can this process mount one of this type?
  package static func isAvailable(_ type: String) -> Bool {
    isAvailable && (try? LoopImage(megabytes: smallest[type] ?? 32, type: type)) != nil
  }

  /// MiB below which `mkfs` makes none.
  private static let smallest = ["btrfs": 120, "xfs": 320]

  /// A new file system of so many MiB. `make` are further words for `mkfs`, `options` for `mount`. A `thin` one has only so many MiB
  /// of real blocks, and whoever writes more learns it when the blocks are written.
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
    // No space that only the superuser gets.
    guard
      type == "tmpfs"
        || Self.run(["mkfs.\(type)", "-q"] + (type == "ext4" ? ["-F", "-m", "0"] : ["-f"]) + make + [image])
    else { throw StoreError(.inputOutput, "cannot make the file system", path: image) }
    try mount()
    unsafe chmod(path, 0o700)
  }

  private func mount() throws {
    guard Self.run(["mount", "-t", type, "-o", options, image, path]) else {
      throw StoreError(.inputOutput, "cannot mount it", path: image)
    }
  }

  /// Unmounts it and mounts it again: what it shows then is what the disk has. Nobody may have a file of it open.
  /// `between` is called while it is not mounted.
  package func mountAgain(between: () throws -> Void = {}) throws {
    // A thread that was at the sync may let go of the last file a moment after its error was seen.
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

  /// Is `text` anywhere in what was written to it, be it in a file that has gone since? `mountAgain` has all of it there.
  package func holds(_ text: String) -> Bool { Self.run(["grep", "-q", "-a", "-F", text, image]) }

  /// Writes all that the kernel holds of it to the disk, as the kernel does by itself now and then.
  package func writeBack() { Self.run(["sync", "-f", path]) }

  deinit {
    Self.run(["umount", "-l", path])
    if isThin { Self.run(["umount", "-l", pool]) }
  }

  private var pool: String { directory.path + "/pool" }

  /// From now on a thin one has so many MiB of real blocks.
  package func thicken(megabytes: Int) throws {
    guard Self.run(["mount", "-o", "remount,size=\(megabytes)m", pool]) else {
      throw StoreError(.inputOutput, "cannot make it larger", path: pool)
    }
  }

  /// The block device under it, without "/dev/".
  package var device: String? {
    Self.output(["findmnt", "-n", "-o", "SOURCE", path]).map { String($0.dropFirst("/dev/".count)) }
  }

  /// Mounts it anew with these options.
  @discardableResult
  package func remount(_ options: String) -> Bool { Self.run(["mount", "-o", "remount,\(options)", path]) }

  /// Takes all its space but `bytes`. The file that takes it is called "filler".
  package func fill(leaving bytes: Int = 0) throws {
    let file = try DiskStorage().open(path + "/filler", .openOrCreate)
    // Down to the last block: what is asked for halves until nothing is left.
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

  /// Gives back what `fill` took.
  package func drain() {
    unsafe unlink(path + "/filler")
    // Some file systems give it back with the next commit.
    writeBack()
    if type == "btrfs" { Self.run(["btrfs", "balance", "start", "-dusage=0", path]) }
  }

  /// Runs a program, found in the usual directories. True if it ended well.
  @discardableResult
  package static func run(_ words: [String]) -> Bool { output(words) != nil }

  /// What it says; nil if it ended otherwise.
  private static func output(_ words: [String]) -> String? {
    let result = try? ChildProcess.run(
      ["/usr/bin/env"] + words, environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"])
    return result?.code == 0 ? result?.text.trimmingCharacters(in: .whitespacesAndNewlines) : nil
  }
}

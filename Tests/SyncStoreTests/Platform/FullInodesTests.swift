import Foundation
import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// A file system with free space, but no free inode.
@Suite("A file system without free inodes", .enabled(if: LoopImage.isAvailable))
struct FullInodesTests {
  static let configuration = Configuration(blobThreshold: 2000, segmentBytes: 256 << 10)

  /// The state that the opening process finds.
  enum Before: CaseIterable { case closed, copiedInUse, anotherBoot, copied, withoutIndex, encrypted }

  /// A file system with few inodes, removed with the last reference.
  final class Volume: Sendable {
    let path: String
    private let directory = TemporaryDirectory()

    init(type: String) throws {
      path = directory.path + "/mounted"
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
      var words = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=80,mode=700", "tmpfs", path]
      if type == "ext4" {
        let image = directory.path + "/image"
        try DiskStorage().open(image, .create).resize(to: 48 << 20)
        guard LoopImage.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "80", image]) else {
          throw StoreError(.inputOutput, "cannot make the file system", path: image)
        }
        words = ["mount", "-t", "ext4", "-o", "loop", image, path]
      }
      guard LoopImage.run(words) else { throw StoreError(.inputOutput, "cannot mount it", path: path) }
      unsafe chmod(path, 0o700)
    }

    deinit { LoopImage.run(["umount", "-l", path]) }

    /// Makes files until none can be made.
    func fill() {
      for number in 0... {
        guard (try? DiskStorage().open(path + "/filler \(number)", .create)) != nil else { return }
      }
    }
  }

  @Test(
    "a store opens, is read, takes small values and deletes; operations that need a file report no space",
    arguments: Before.allCases, ["tmpfs", "ext4"])
  func opens(_ before: Before, _ type: String) throws {
    let volume = try Volume(type: type)
    var path = volume.path + "/store"
    var configuration = Self.configuration
    if before == .encrypted {
      configuration.passphrase = Passphrase("a person's")
      configuration.passphraseCost = Scrypt.Parameters(logN: 1, r: 1, p: 1)
    }
    var environment = Environment.real()
    environment.compactionMode = .onRequest
    func open() throws -> Store {
      try Store.open(at: path, configuration: configuration, environment: environment)
    }
    let store = try Store.create(
      at: path, name: nil, id: nil, configuration: configuration, environment: environment)
    let packed = [UInt8](repeating: 5, count: 5000)
    let large = [UInt8](repeating: 6, count: 5 << 20)
    try store.put("k", "1")
    try store.put("packed", packed)
    try store.put("large", large)
    switch before {
    case .closed, .encrypted: try store.close()
    case .copiedInUse:
      // A copied directory is cut after the durable length stated by a later record.
      try store.put("last", "x", durability: .full)
      #expect(LoopImage.run(["cp", "-a", path, path + " copied"]))
      path += " copied"
    case .anotherBoot:
      try store.close()
      environment.boot = "another"
    case .withoutIndex:
      try store.close()
      for name in ["index", "ledger"] { _ = try DiskStorage().remove(path + "/" + name) }
    case .copied:
      try store.close()
      #expect(LoopImage.run(["cp", "-a", path, path + " copied"]))
      path += " copied"
    }
    volume.fill()
    for round in 0..<2 {
      let again = try open()
      #expect(try again.get("packed")?.bytes == packed && again.get("large")?.bytes == large)
      try again.put("k", "\(round)", durability: .full)
      try again.put("other", "x")
      #expect(try again.delete("other"))
      #expect(try again.text("k") == "\(round)")
      let error = #expect(throws: StoreError.self) {
        try again.put("new", [UInt8](repeating: UInt8(round), count: 5 << 20))
      }
      #expect(error?.code == .diskFull, "\(error?.description ?? "")")
      try again.close()
    }
    let last = try open()
    #expect(try last.text("k") == "1" && last.get("other") == nil && last.verify().isClean)
    try last.close()
    withExtendedLifetime(store) {}
  }

  @Test("a full segment has no successor: puts fail, deletes and reads work")
  func fullSegment() throws {
    let volume = try Volume(type: "tmpfs")
    let store = try Store.create(
      at: volume.path + "/store", configuration: Configuration(segmentBytes: 64 << 10))
    try store.put("k", "1")
    volume.fill()
    let error = #expect(throws: StoreError.self) {
      for number in 0..<1000 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 900)) }
    }
    #expect(error?.code == .diskFull)
    #expect(try store.delete("k") && store.get("0") != nil)
    try store.sync()
    for number in 0..<3 { _ = try? DiskStorage().remove(volume.path + "/filler \(number)") }
    try store.put("k", "2", durability: .full)
    #expect(try store.text("k") == "2")
    try store.close()
  }
}

import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A device number depends on the order of detection. XFS and F2FS report it as the file system's identifier.
@Suite(
  "A store on a file system mounted from another device",
  .enabled(if: LoopImage.isAvailable, "needs the right to mount"), .timeLimit(.minutes(Patience.minutes(2))))
struct RemountTests {
  // The device number of btrfs is not that of a device.
  private static let types = ["ext4", "xfs", "f2fs"].filter(LoopImage.isAvailable)

  private static func device(of path: String) throws -> UInt64 {
    let status = try DiskStorage().status(path)
    return try #require(status).fileSystem
  }

  private static func number(of path: String) throws -> UInt64 {
    try DiskStorage().open(path, .readOnly).status().fileSystem
  }

  /// Remounts the image until another device holds it: other images take its former device, and those below.
  private static func move(_ image: LoopImage) throws {
    let before = try device(of: image.path)
    var others: [LoopImage] = []
    while others.count < 20, try device(of: image.path) == before {
      try image.mountAgain { others.append(try LoopImage(megabytes: 8)) }
    }
    let now = try device(of: image.path)
    try #require(now != before)
  }

  /// Makes a store, closes it, and releases the directory. Returns the actor.
  private static func fill(_ path: String) throws -> ActorID {
    let store = try Store.create(at: path)
    try store.put("k", "1", durability: .full)
    defer { try? store.close() }
    return try store.actor
  }

  @Test("keeps its actor, its index and its file system's number (R9)", arguments: types)
  func moved(type: String) throws {
    let image = try LoopImage(megabytes: type == "xfs" ? 320 : 128, type: type)
    let path = image.path + "/store"
    let actor = try Self.fill(path)
    let (number, device) = (try Self.number(of: path + "/STORE"), try Self.device(of: path))
    try #require(number != device)
    try Self.move(image)
    #expect(try Self.number(of: path + "/STORE") == number)
    let again = try Store.open(at: path)
    #expect(try again.actor == actor && again.text("k") == "1")
    #expect(try again.replicaSummary().health == .healthy)
    try again.close()
  }

  @Test("is distinguished from its copy on another file system of the same type (R9)", arguments: types)
  func copied(type: String) throws {
    let images = try (0..<2).map { _ in try LoopImage(megabytes: type == "xfs" ? 320 : 128, type: type) }
    let store = try Store.create(at: images[0].path + "/store")
    let actor = try store.actor
    try store.close()
    #expect(LoopImage.run(["cp", "-a", images[0].path + "/store", images[1].path + "/store"]))
    let copy = try Store.open(at: images[1].path + "/store")
    #expect(try copy.actor != actor)
    let numbers = try images.map { try Self.number(of: $0.path + "/store/STORE") }
    #expect(numbers[0] != numbers[1])
    try copy.close()
  }
}

import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// An overlay over a directory, unmounted with the last reference.
private final class OverlayMount {
  static let isAvailable: Bool = {
    let lower = TemporaryDirectory()
    defer { withExtendedLifetime(lower) {} }
    return LoopImage.isAvailable && (try? OverlayMount(over: lower.path)) != nil
  }()

  let path: String
  private let directory = TemporaryDirectory()

  init(over lower: String) throws {
    path = directory.path + "/merged"
    for name in ["merged", "upper", "work"] {
      try FileManager.default.createDirectory(
        atPath: directory.path + "/" + name, withIntermediateDirectories: true)
    }
    let layers = "lowerdir=\(lower),upperdir=\(directory.path)/upper,workdir=\(directory.path)/work"
    guard LoopImage.run(["mount", "-t", "overlay", "overlay", "-o", layers, path]) else {
      throw StoreError(.inputOutput, "cannot mount it", path: path)
    }
  }

  deinit { _ = LoopImage.run(["umount", "-l", path]) }
}

/// Containers: an image with a store is the lower layer of each container made from it.
@Suite(
  "A store on overlayfs", .enabled(if: OverlayMount.isAvailable, "needs the right to mount"),
  .timeLimit(.minutes(Patience.minutes(2))))
struct OverlayTests {
  private let lower = TemporaryDirectory()

  private func filledImage() throws -> ActorID {
    let store = try Store.create(at: lower.path + "/store")
    try store.put("k", "image")
    try store.put("large", [UInt8](repeating: 7, count: 100_000))
    defer { try? store.close() }
    return try store.actor
  }

  @Test("shows a reader what is written after it has mapped a file of the lower layer")
  func readers() throws {
    _ = try filledImage()
    let overlay = try OverlayMount(over: lower.path)
    let path = overlay.path + "/store"
    let storage = try DiskStorage().anchored(at: path)
    let name = try #require(try storage.list(path + "/journal").first { $0.hasSuffix(".segment") })
    let reader = try storage.open(path + "/journal/" + name, .readOnly)
    let mapping = try reader.map(8192, writable: false)
    try DiskStorage().open(path + "/journal/" + name, .readWrite).write([0xA5], at: 8000)
    #expect(mapping.load(8000, as: UInt8.self) == 0xA5)
    #expect(try DiskStorage().fileSystem(path).mappedStoresMayFail)
  }

  @Test("is another copy in each container, and leaves the image unchanged (R9)")
  func containers() throws {
    let actor = try filledImage()
    let overlays = try (0..<2).map { _ in try OverlayMount(over: lower.path) }
    var actors: Set<ActorID> = [actor]
    var stores: [Store] = []
    for (number, overlay) in overlays.enumerated() {
      let store = try Store.open(at: overlay.path + "/store")
      #expect(try store.text("k") == "image" && store.get("large")?.bytes.count == 100_000)
      try store.put(Key("container \(number)"), "1", durability: .full)
      actors.insert(try store.actor)
      stores.append(store)
    }
    #expect(actors.count == 3)
    try stores[0].synchronize(with: stores[1])
    #expect(try stores[0].digest() == stores[1].digest() && stores[1].text("container 0") == "1")
    for store in stores { try store.close() }
    for overlay in overlays {
      let again = try Store.open(at: overlay.path + "/store")
      #expect(try actors.contains(again.actor) && again.actor != actor)
      try again.close()
    }
    let image = try Store.open(at: lower.path + "/store")
    #expect(try image.actor == actor && image.text("container 0") == nil && image.verify().isClean)
    try image.close()
  }

  @Test("can be created, compacted, backed up and recovered after a kill")
  func everyday() throws {
    let overlay = try OverlayMount(over: lower.path)
    let path = overlay.path + "/store"
    let store = try Store.create(at: path, configuration: Configuration(segmentBytes: 64 << 10))
    for number in 0..<400 {
      try store.put(Key("key \(number % 50)"), [UInt8](repeating: UInt8(number % 251), count: 2000))
    }
    try store.put("large", [UInt8](repeating: 1, count: 5_000_000))
    try store.compact()
    #expect(try store.verify().isClean)
    _ = try store.backUp(to: overlay.path + "/saved")
    try store.close()
    let again = try Store.open(at: path)
    #expect(try again.get("key 49")?.bytes.first == UInt8(399 % 251) && again.verify().isClean)
    try again.close()
    try Store.restore(from: overlay.path + "/saved", to: overlay.path + "/restored")
    #expect(FileManager.default.fileExists(atPath: overlay.path + "/restored/STORE"))
  }
}

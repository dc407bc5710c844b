import Foundation

/// A directory of a test's own, removed with its last reference.
///
/// In the sources here a path begins with `here + `, which is not in the documents: there it is relative.
final class Scratch: Sendable {
  let path = NSTemporaryDirectory() + "sync-store-snippet-" + UUID().uuidString

  init() { try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  func write(_ name: String, _ content: [UInt8]) throws {
    try Data(content).write(to: URL(fileURLWithPath: path + "/" + name))
  }

  func read(_ name: String) throws -> [UInt8] {
    Array(try Data(contentsOf: URL(fileURLWithPath: path + "/" + name)))
  }
}

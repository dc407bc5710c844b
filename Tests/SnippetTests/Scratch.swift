import Foundation

/// A temporary directory, removed with its last reference.
///
/// Paths in the snippets begin with `here + `; the documents show them without it, as relative paths.
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

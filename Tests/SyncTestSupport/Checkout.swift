package import Foundation

/// The working tree that the tests were built from.
package enum Checkout {
  /// Its top directory.
  package static let top: String = {
    var url = URL(filePath: #filePath)
    while url.path != "/", !FileManager.default.fileExists(atPath: url.path + "/Package.swift") {
      url.deleteLastPathComponent()
    }
    return url.path
  }()

  /// The file or directory at this path below the top.
  package static func url(_ path: String) -> URL { URL(filePath: top + "/" + path) }

  /// Decodes a file of golden vectors, `schemas/vectors/NAME`.
  package static func vector<Content: Decodable>(_ name: String, as _: Content.Type = Content.self) throws
    -> Content
  {
    try JSONDecoder().decode(Content.self, from: Data(contentsOf: url("schemas/vectors/" + name)))
  }
}

private import SyncStore

extension ForeignBytes {
  private static let tier = Locked(try? CatalogueTemplate())

  /// A damaged catalogue of large values with intact objects in files and packs. The first byte chooses the
  /// damage (`CatalogueTemplate.damage`), the others are its input. No value may be lost or changed; a
  /// damaged catalogue is rebuilt; unreferenced objects are removed afterwards.
  package static func catalogues(_ bytes: [UInt8]) {
    guard bytes.count >= 2 else { return }
    tier.withLock { template in
      guard let template else { preconditionFailure("no tier whose catalogue could be damaged") }
      do {
        try template.restore()
        try template.damage(bytes)
      } catch { preconditionFailure("the catalogue cannot be damaged: \(error)") }
      do { try template.look(evicting: bytes[1]) } catch { fatalError("\(error)") }
    }
  }
}

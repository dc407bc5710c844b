private import SyncStore

extension ForeignBytes {
  private static let tier = Locked(try? CatalogueTemplate())

  /// A catalogue of large values that is damaged, beside objects in files and in packs that are not: the first byte says how
  /// (`CatalogueTemplate.damage`), the others what. Whatever it says, no value is lost or another; it is made anew where it is
  /// damaged; and what nothing refers to goes once it was.
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

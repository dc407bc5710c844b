/// Why a copy must not write users' keys: no other member would accept them, and the copy would diverge.
package enum WriteDenial: UInt8, Hashable, Sendable {
  /// It is a read-only member.
  case readOnly = 1
  /// It was revoked.
  case revoked = 2

  /// Decodes its local record (`replica/denied`, `schemas/journal.md`). An unknown reason also denies writes.
  init(bytes: [UInt8]) { self = bytes.first.flatMap(WriteDenial.init(rawValue:)) ?? .readOnly }

  /// The error for a writer.
  package var error: StoreError {
    switch self {
    case .readOnly:
      StoreError(
        .notAllowed,
        "this copy is a read-only member, and a write here would reach no other one: write on a copy that is read-write, "
          + "or have one of those change the right of this one (`Membership.setRight`)")
    case .revoked:
      StoreError(
        .notAllowed,
        "this copy was revoked, and a write here would reach no other member: join again with a new copy")
    }
  }
}

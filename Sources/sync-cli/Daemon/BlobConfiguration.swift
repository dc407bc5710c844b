import SyncStore

/// The daemon's configuration of large values; `schemas/config.md` describes it.
struct BlobConfiguration: Equatable {
  var policy = BlobPolicy.eager
  var limits = BlobLimits()

  init(_ json: JSON) throws(Reason) {
    guard case .object(let members) = json else { throw Reason("\"blobs\" does not hold an object") }
    for member in members {
      let what = "\"blobs.\(Text.printable(member.name.utf8))\""
      switch member.name {
      case "take":
        switch member.value.text {
        case "eager": policy.eagerBytes = .max
        case "lazy": policy.eagerBytes = 0
        default: policy.eagerBytes = try Self.number(member.value, what, orElse: "\"eager\", \"lazy\" or ")
        }
      case "eager_prefixes":
        guard case .array(let items) = member.value, items.count <= BlobPolicy.maximumPrefixes else {
          throw Reason("\(what) is no list of at most \(BlobPolicy.maximumPrefixes) texts")
        }
        for item in items {
          guard let text = item.text, text.utf8.count <= Limits.keyBytes else {
            throw Reason("\(what) holds something that no key begins with")
          }
          policy.eagerPrefixes.append(Array(text.utf8))
        }
      case "max_bytes": limits.bytes = try Self.number(member.value, what)
      case "max_count": limits.count = try Self.number(member.value, what)
      case "max_age_seconds":
        let seconds = try Self.number(member.value, what)
        guard seconds <= UInt64.max / 1000 else { throw Reason("\(what) is beyond all ages") }
        limits.ageMilliseconds = seconds * 1000
      case "min_free_bytes": limits.freeDiskBytes = try Self.number(member.value, what)
      case "copies":
        let copies = try Self.number(member.value, what)
        guard (1...UInt64(Limits.blobCopies)).contains(copies) else {
          throw Reason("\(what) is no whole number from 1 to \(Limits.blobCopies)")
        }
        limits.copies = Int(copies)
      case "trim_seconds":
        let seconds = try Self.number(member.value, what)
        guard seconds <= 604_800 else { throw Reason("\(what) is no whole number from 0 to 604800") }
        limits.trimSeconds = UInt32(seconds)
      default: throw Reason("\(what) is no setting")
      }
    }
    if policy.eagerBytes == .max, !policy.eagerPrefixes.isEmpty {
      throw Reason(
        "\"blobs.eager_prefixes\" says nothing while \"blobs.take\" is \"eager\": say \"lazy\" or a size")
    }
  }

  private static func number(_ value: JSON, _ what: String, orElse: String = "") throws(Reason) -> UInt64 {
    guard case .number(let text) = value, let number = UInt64(text) else {
      throw Reason("\(what) is not \(orElse)a whole number from 0")
    }
    return number
  }

  /// Saves it in the store, for all processes that use the store.
  func keep(in store: Store) throws(StoreError) {
    try store.setBlobLimits(limits)
    try store.setBlobPolicy(policy)
  }
}

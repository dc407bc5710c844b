import SyncStore

/// A place inside the store's directory for bytes that are on their way in and too many for memory.
///
/// What a killed process left behind is removed by the next one that stages something.
final class Staging {
  private let directory: Descriptor
  private let name: [UInt8]
  /// Where the file is.
  let path: String

  /// Makes room in the store at `store`.
  init(storeAt store: String) throws(Failure) {
    let folder = store + "/staging"
    try Descriptor.makeDirectories(Array(folder.utf8), mode: 0o700)
    directory = try Descriptor.reading(Array(folder.utf8), waiting: false)
    for left in try directory.names() where !Self.isInUse(left) { directory.remove(left) }
    let name = "\(System.processID)-\(UInt64.random(in: 0 ... .max))"
    self.name = Array(name.utf8)
    path = folder + "/" + name
  }

  deinit { directory.remove(name) }

  private static func isInUse(_ name: [UInt8]) -> Bool {
    Int32(String(decoding: name.prefix { $0 != UInt8(ascii: "-") }, as: UTF8.self)).map(System.isAlive)
      ?? true
  }

  /// Takes in `first` and then all that `source` gives.
  func fill(first: [UInt8], from source: Descriptor) throws(Failure) {
    let file = try directory.creating(name, mode: 0o600)
    var part = first
    repeat {
      try file.write(part)
      part = try source.read(1 << 20)
    } while !part.isEmpty
  }
}

extension Store {
  /// Puts all that `source` gives: in one piece if it is small, through the blob tier otherwise.
  func put(
    _ key: Key, from source: Descriptor, type: ValueType = .bytes, expires deadline: UInt64? = nil,
    durability: Durability? = nil
  ) throws {
    let first = try source.readAll(limit: Limits.inlineValueBytes)
    if first.count < Limits.inlineValueBytes {
      try put(key, first, type: type, expires: deadline, durability: durability)
    } else {
      let staging = try Staging(storeAt: path)
      try staging.fill(first: first, from: source)
      try put(key, fileAt: staging.path, type: type, expires: deadline, durability: durability)
    }
  }
}

import SyncStore

extension Store {
  /// Sets a key to all bytes of `source`: in one piece if it is small, otherwise streamed into the blob tier.
  ///
  /// The value never passes through a temporary file: the blob tier encrypts each piece before writing it, so
  /// that no plaintext of an encrypted store reaches the disk, even if the process is killed.
  func put(
    _ key: Key, from source: Descriptor, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws {
    let first = try source.readAll(limit: Limits.inlineValueBytes)
    if first.count < Limits.inlineValueBytes {
      return try put(key, first, type: type, expiration: expiration, durability: durability)
    }
    try put(key, type: type, expiration: expiration, durability: durability) { writer in
      var part = first
      repeat {
        try writer.append(part)
        part = try source.read(1 << 20)
      } while !part.isEmpty
    }
  }
}

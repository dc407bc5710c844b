import SyncStore

extension Store {
  /// Sets a key to all that `source` gives: in one piece if it is small, else streamed into the blob tier.
  ///
  /// The value never passes through a file of its own: the blob tier encrypts each piece before it writes it, so that no
  /// plaintext of an encrypted store reaches the disk, whenever the process is killed.
  func put(
    _ key: Key, from source: Descriptor, type: ValueType = .bytes, expires deadline: UInt64? = nil,
    durability: Durability? = nil
  ) throws {
    let first = try source.readAll(limit: Limits.inlineValueBytes)
    if first.count < Limits.inlineValueBytes {
      return try put(key, first, type: type, expires: deadline, durability: durability)
    }
    try put(key, type: type, expires: deadline, durability: durability) { writer in
      var part = first
      repeat {
        try writer.append(part)
        part = try source.read(1 << 20)
      } while !part.isEmpty
    }
  }
}

internal import Synchronization

/// Open packs, and opening them.
extension PackSet {
  /// The pack of an ordinal, opened if necessary; nil if it is gone.
  func pack(_ ordinal: Int, _ state: inout State) throws(StoreError) -> Pack? {
    if let pack = state.packs[ordinal].pack {
      return pack.hasMappingFault ? try remap(pack, ordinal: ordinal, &state, ignoringBackoff: false) : pack
    }
    guard !state.packs[ordinal].isGone else { return nil }
    guard let pack = try openPack(state.packs[ordinal].number) else {
      drop(ordinal, &state)
      return nil
    }
    keepOpen(pack, ordinal: ordinal, &state)
    return pack
  }

  /// Remaps a pack whose table mapping has a fault: the new mapping shows the content of the file. The file
  /// keeps its lock.
  func remap(_ pack: Pack, ordinal: Int, _ state: inout State, ignoringBackoff: Bool) throws(StoreError)
    -> Pack
  {
    let now = SystemCall.monotonicMilliseconds()
    guard !state.packs[ordinal].isEvacuating, ignoringBackoff || now >= state.packs[ordinal].nextRemapAt
    else {
      return pack
    }
    state.packs[ordinal].nextRemapAt = now + Self.remapBackoffMilliseconds
    let again = try Pack(
      pack.header, name: pack.name, file: pack.file, isWritable: pack.isWritable,
      headerState: pack.headerState)
    again.isNamed.store(pack.isNamed.load(ordering: .acquiring), ordering: .releasing)
    state.packs[ordinal].pack = again
    return again
  }

  private static let remapBackoffMilliseconds: UInt64 = 1000

  func keepOpen(_ pack: Pack, ordinal: Int, _ state: inout State) {
    if state.openPacks >= Self.maxOpenPacks {
      for other in state.packs.indices
      where state.packs[other].isClosed && !state.packs[other].isEvacuating && state.packs[other].pack != nil
      {
        state.packs[other].pack = nil
        state.openPacks -= 1
        if state.openPacks < Self.maxOpenPacks / 2 { break }
      }
    }
    state.packs[ordinal].pack = pack
    state.openPacks += 1
  }

  /// Forgets a pack whose file was removed.
  func drop(_ ordinal: Int, _ state: inout State) {
    if let pack = state.packs[ordinal].pack {
      state.openPacks -= 1
      pack.file.deferRelease()
    }
    state.liveCount -= state.packs[ordinal].liveCount
    state.liveBytes -= state.packs[ordinal].liveBytes
    (state.packs[ordinal].liveCount, state.packs[ordinal].liveBytes) = (0, 0)
    state.setFileBytes(0, ordinal)
    (state.packs[ordinal].pack, state.packs[ordinal].isGone) = (nil, true)
  }

  /// Opens the file of a pack; nil if it is missing, was never finished, or is being created. A file that is
  /// no pack is quarantined.
  func openPack(_ number: UInt64) throws(StoreError) -> Pack? {
    let name = Pack.name(number)
    let opened: (any StorageFile)?
    do throws(StoreError) { opened = try files.open(name, readOnly ? .readOnly : .readWrite) } catch {
      guard error.code == .foreignFile, !readOnly else { throw error }
      try files.quarantine(name)
      return nil
    }
    guard let file = opened else { return nil }
    if let pack = try pack(in: file, number, name) { return pack }
    // Its creator holds the lock until the pack is complete; the pack of a killed creator held nothing
    // durable.
    guard !readOnly, try file.lock(byte: 0, .exclusive, wait: false) else { return nil }
    // The creator may have finished in between.
    if let pack = try pack(in: file, number, name) {
      _ = try file.lock(byte: 0, .none, wait: false)
      return pack
    }
    let isEmpty = try file.read(PackLayout.headerBytes, at: 0).allSatisfy { $0 == 0 }
    if isEmpty { try files.remove(name) } else { try files.quarantine(name) }
    return nil
  }

  /// Reads the pack in a file; nil if neither header copy is valid.
  private func pack(in file: any StorageFile, _ number: UInt64, _ name: String) throws(StoreError) -> Pack? {
    let size = try file.status().size
    let copies = try PackLayout.headerCopies.map { offset throws(StoreError) in
      try file.read(PackLayout.headerLength, at: offset)
    }
    for bytes in copies {
      guard let header = try PackHeader(bytes, path: file.path), header.number == number,
        size >= header.tableBytes
      else { continue }
      let isMended = copies.allSatisfy { $0 == bytes } || repairHeaders(with: bytes, of: file)
      return try Pack(
        header, name: name, file: file, isWritable: !readOnly, headerState: isMended ? .intact : .damaged)
    }
    return nil
  }

  /// Rewrites the header copies that differ from the valid `bytes`. False if that fails.
  ///
  /// Nothing else writes there once a pack is complete.
  private func repairHeaders(with bytes: [UInt8], of file: any StorageFile) -> Bool {
    guard !readOnly else { return false }
    for offset in PackLayout.headerCopies {
      guard (try? file.write(bytes, at: offset)) != nil else { return false }
    }
    StoreLog.log(
      .warning, path: file.path, "one of the two copies of its header was damaged: it was written anew")
    return true
  }
}

/// Appending on file systems where a store to mapped memory can fail although the bytes were allocated
/// (btrfs, ZFS, FUSE, network file systems). Records are encoded in memory of this process, written with
/// `pwrite`, which can report a full disk, and read through the mapping as everywhere (rule R1, F26).
extension Segment {
  /// True if records are written to the file with `pwrite` rather than stored into its mapping.
  var usesPwrite: Bool { target !== mapping }

  /// Writes the records encoded in `range`.
  func flush(_ range: Range<Int>) throws(StoreError) {
    guard usesPwrite else { return }
    try file.write(range, of: target, at: range.lowerBound)
    // Written bytes are not read from here again: return their memory, a MiB at a time.
    let chunk = 1 << 20
    let done = range.upperBound / chunk * chunk
    if done > range.lowerBound { target.discard(max(0, done - chunk - range.count)..<done) }
  }

  /// Zeros the bytes in `range`, which is not published.
  func blank(_ range: Range<Int>) throws(StoreError) {
    guard usesPwrite else { return mapping.clear(range) }
    try file.write([UInt8](repeating: 0, count: range.count), at: range.lowerBound)
  }
}

extension Store {
  /// Runs `first`, then writes the records encoded in `range`. On failure the range is zeroed: otherwise its
  /// records would be taken for valid ones once new records end where they begin. If zeroing fails, too, or
  /// the error is not a full disk, the store is poisoned (rule R4).
  func flush(
    _ range: Range<Int>, of segment: Segment, _ first: (Segment) throws(StoreError) -> Void
  ) throws(StoreError) {
    do throws(StoreError) {
      try first(segment)
      try segment.flush(range)
    } catch {
      segment.undoEncryption(from: range.lowerBound)
      do throws(StoreError) { try segment.blank(range) } catch {
        control.setPoisoned()
        throw StoreError(
          .poisoned, "\(error.message); \(poisonedError.message)", path: segment.file.path, errno: error.errno
        )
      }
      guard error.code == .diskFull else {
        control.setPoisoned()
        throw StoreError(
          .poisoned, "\(error.message); \(poisonedError.message)", path: segment.file.path, errno: error.errno
        )
      }
      throw error
    }
  }
}

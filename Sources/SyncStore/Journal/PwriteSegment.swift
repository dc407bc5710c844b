/// Appending where a store to mapped memory can fail though the bytes were allocated (btrfs, ZFS, FUSE, network file
/// systems): the records are put together in memory of this process, written with `pwrite`, which can say that there is no
/// space, and read through the mapping of the file as everywhere (rule R1, F26).
extension Segment {
  /// Are its records written to the file, rather than stored into its mapping?
  var usesPwrite: Bool { target !== mapping }

  /// Writes the records that were put together in `range`.
  func flush(_ range: Range<Int>) throws(StoreError) {
    guard usesPwrite else { return }
    try file.write(range, of: target, at: range.lowerBound)
    // What was written is not looked at again: its memory goes back a MiB at a time.
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
  /// Writes what was put together in `range`, and before it what `first` does. If that fails nothing of it stays behind the tail, lest it
  /// be taken for records once new ones end where it begins; if that fails, too, nobody writes any more (rule R4).
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

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

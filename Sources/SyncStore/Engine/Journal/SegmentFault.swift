private import Glibc

/// State of a segment after the kernel could not provide a page of its mapping: another program truncated the
/// file, its disk failed, or the disk was full (F26, F28, F38). The page then reads as zeros, for which no
/// checksum matches. A record copied between the checksum check and the fault is checked again.
extension Segment {
  /// Why pages cannot be read; nil if no fault has occurred.
  var faultError: StoreError? {
    switch mapping.fault {
    case nil: return nil
    case .truncated:
      let left = (try? file.status().size).map { "\($0)" } ?? "not all"
      return StoreError(
        .damaged,
        "was cut short by another program while in use: \(left) of \(mapping.count) bytes left: close the store, then "
          + "restore it from a backup or join it anew", path: file.path)
    case .refused:
      return StoreError(
        .inputOutput,
        "the system does not give a page of it: the disk failed, takes no writes or is full: check the disk, close the "
          + "store and open it again", path: file.path, errno: EIO)
    }
  }

  /// Fails if the record at `offset` may have changed while it was copied. Call it after the copy.
  @inline(__always)
  func checkUnchanged(at offset: Int) throws(StoreError) {
    if mapping.fault != nil { try checkAgain(at: offset) }
  }

  @inline(never)
  private func checkAgain(at offset: Int) throws(StoreError) {
    // One bad page costs the records on it, not the others of the segment.
    guard record(at: offset, limit: mapping.count) == nil, let error = faultError else { return }
    throw error
  }
}

extension Journal {
  /// Fails if pages of one of the segments cannot be read: neither hits nor misses there are reliable.
  func checkFaults(_ segments: some Sequence<Segment>) throws(StoreError) {
    for segment in segments {
      if let error = segment.faultError { throw error }
    }
  }
}

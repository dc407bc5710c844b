private import Glibc

/// What a segment is good for once the kernel could not give a page of its mapping: the file was cut short by somebody
/// else, its disk failed, or there was no space under a page (F26, F28, F38). Zeros stand in place of the page; no checksum
/// holds for them. What was copied between the look at a checksum and the fault is looked at once more.
extension Segment {
  /// Why pages of it cannot be had; nil if all could so far.
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

  /// Fails if the record at `offset` may have changed while it was copied. To be asked behind the copying.
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
  /// Fails if pages of one of those segments cannot be had: what was read there, or not found, says nothing.
  func checkFaults(_ segments: some Sequence<Segment>) throws(StoreError) {
    for segment in segments {
      if let error = segment.faultError { throw error }
    }
  }
}

extension Store {
  /// After bytes were stored in a segment: fails, and lets nobody write any more, if they are not in its file (rule R4).
  @inline(__always)
  func checkStored(in segment: Segment) throws(StoreError) {
    if segment.mapping.fault != nil || control.isLost { throw poisonBecause(of: segment) }
  }

  @inline(never)
  private func poisonBecause(of segment: Segment) -> StoreError {
    control.setPoisoned()
    guard let error = segment.faultError else { return poisonedError }
    return StoreError(
      .poisoned, "\(error.message); \(poisonedError.message)", path: error.path, errno: error.errno)
  }
}

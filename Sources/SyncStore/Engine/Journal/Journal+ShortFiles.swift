/// Segment files that are shorter than their headers state: truncated by another program or a failing file
/// system.
extension Journal {
  /// The content mapped for a segment's file.
  struct Content {
    let mapping: Mapping
    var defects = FileDefects.none
  }

  /// The content of a segment's file. Missing bytes read as zeros, like the unused rest of a segment: whole
  /// records are served, a record that was cut is damage. A writer lengthens the file; a reader gets a copy
  /// in memory, since a mapping has no pages past the end of a file.
  ///
  /// The header of the next segment records where a closed segment ends. For the last segment the index may
  /// know the end (`knownEnd`), or zeros after the last record show that none was lost. Otherwise the content
  /// ends at `FileDefects.truncatedEnd`, and a writer gets a copy, too: it lengthens the file only after the
  /// header of a new segment records this end durably. Lengthened earlier, the file looks complete after a
  /// crash, and the loss goes unnoticed.
  func content(of file: any StorageFile, _ header: SegmentHeader, isLast: Bool) throws(StoreError) -> Content
  {
    let (size, present) = (Int(header.size), try file.sizeAtOpening)
    guard present < size else { return Content(mapping: try file.map(size, writable: writable)) }
    let missing = size - present
    let copy = try Self.copy(of: file, size, present: present)
    let cutEnd =
      isLast && header.compaction == 0 ? truncatedEnd(present: present, copy: copy, header: header) : nil
    guard writable, cutEnd == nil else {
      return Content(mapping: copy, defects: .short(by: missing, truncatedEnd: cutEnd))
    }
    try file.allocate(to: size)
    StoreLog.log(
      .warning, path: file.path,
      "the file was \(CountText.of(missing, noun: "byte")) shorter than its header says: it was lengthened")
    return Content(mapping: try file.map(size, writable: true), defects: .lengthened(by: missing))
  }

  /// The end of a last segment that has only its first `present` bytes in the file; nil if no record was
  /// lost.
  private func truncatedEnd(present: Int, copy: Mapping, header: SegmentHeader) -> Int? {
    if let knownEnd, knownEnd.segment == header.number {
      return knownEnd.offset > present ? min(knownEnd.offset, copy.count) : nil
    }
    let whole = Self.wholeEnd(present: present, copy: copy, header: header)
    guard !Self.isEnd(whole, present: present, copy: copy) else { return nil }
    // The gap covers at least one slot without a record, so that the loss stays visible as damage. It must
    // not have the length of the record that was cut: damage of exactly one record's length is attributed to
    // that record alone, and others may have followed it.
    let last = max(RecordLayout.aligned(present), SegmentHeader.length)
    let end = min(last + RecordLayout.fixedLength, copy.count)
    guard whole + RecordLayout.length + 4 <= copy.count else { return end }
    let stated = RecordLayout.aligned(copy.recordLength(at: whole))
    return stated == end - whole ? min(end + RecordLayout.alignment, copy.count) : end
  }

  /// Fails if the last segment was truncated while in use: other processes that have it open rely on what was
  /// lost.
  func checkEnd() throws(StoreError) {
    guard let last = segments.last, last.defects.truncatedEnd != nil else { return }
    throw StoreError(
      .damaged,
      "was cut short by another program while in use: close the store in all processes, then open it again",
      path: path(of: last.number))
  }

  /// Fails if the last segment was truncated, in a directory that is a copy. A copy is cut at its watermark
  /// (rule R9), and the records that state the watermark are lost: with an earlier one, reads would silently
  /// return older values.
  func checkCopy() throws(StoreError) {
    guard let last = segments.last, last.defects.truncatedEnd != nil else { return }
    throw StoreError(
      .damaged,
      "lacks its end, and the directory was copied or restored: copy it again from where it came; "
        + "opened for reading only it shows what is whole",
      path: path(of: last.number))
  }

  /// Lengthens the file of a truncated segment. The header of the next segment must record its end durably
  /// first. If this fails, the next opening does it.
  func lengthen(_ segment: Segment) {
    guard (try? segment.file.allocate(to: segment.mapping.count)) != nil else { return }
    segment.defects.recordLengthening()
    StoreLog.log(
      .error, path: segment.file.path,
      "the file was cut within its records: what is whole is served, and what was lost is asked of the peers")
  }

  /// The end of the last whole record within the first `present` bytes.
  private static func wholeEnd(present: Int, copy: Mapping, header: SegmentHeader) -> Int {
    var reader = RecordIterator(copy, salt: header.salt, limit: present)
    while reader.next() != nil {}
    return reader.offset
  }

  /// True if the `present` bytes show that no record follows at `end`: records are contiguous, and none
  /// begins with eight zeros.
  private static func isEnd(_ end: Int, present: Int, copy: Mapping) -> Bool {
    end + RecordLayout.durable <= present && copy.lastNonZero(end..<present) == nil
  }

  private static let piece = 1 << 20

  private static func copy(
    of file: any StorageFile, _ size: Int, present: Int
  ) throws(StoreError) -> Mapping {
    let copy = try Mapping.blank(size)
    for start in stride(from: 0, to: present, by: piece) {
      copy.store(try file.read(min(piece, present - start), at: start), at: start)
    }
    return copy
  }
}

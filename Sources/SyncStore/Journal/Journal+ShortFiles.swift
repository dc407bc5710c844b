/// Segment files that are shorter than their headers say: somebody, or a failing file system, has cut them.
extension Journal {
  /// The content of a segment's file, and by how many bytes the file is too short. Missing bytes read as zeros, like the unused
  /// rest of a segment: whole records are served, a record that was cut is damage. A writer lengthens the file; a reader gets a
  /// copy in memory, since a mapping has no pages past the end of a file.
  ///
  /// The next segment's header tells where the records of a closed one end. Of the last segment nothing does: it is accepted only
  /// if the file shows that no record was lost, otherwise acknowledged writes would vanish without an error.
  func content(
    of file: any StorageFile, _ header: SegmentHeader, isLast: Bool
  ) throws(StoreError) -> (mapping: Mapping, missing: Int) {
    let (size, present) = (Int(header.size), try file.sizeAtOpening)
    guard present < size else { return (try file.map(size, writable: writable), 0) }
    let missing = size - present
    let copy = try Self.copy(of: file, size, present: present)
    guard !isLast || header.compaction > 0 || Self.endsWithin(present, copy, header) else {
      throw StoreError(
        .damaged,
        "ends after \(CountText.of(present, "byte")) of \(size), perhaps within its records: restore it from a backup",
        path: file.path)
    }
    guard writable else { return (copy, missing) }
    try file.allocate(to: size)
    StoreLog.note(
      .warning, file.path,
      "the file was \(CountText.of(missing, "byte")) shorter than its header says: it was lengthened")
    return (try file.map(size, writable: true), missing)
  }

  /// Whether the records end within the first `present` bytes. Records follow one another, and none begins with eight zeros.
  private static func endsWithin(_ present: Int, _ copy: Mapping, _ header: SegmentHeader) -> Bool {
    var reader = RecordReader(copy, salt: header.salt, limit: present)
    while reader.next() != nil {}
    let end = reader.offset
    return end + RecordLayout.durable <= present && copy.lastNonZero(end..<present) == nil
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

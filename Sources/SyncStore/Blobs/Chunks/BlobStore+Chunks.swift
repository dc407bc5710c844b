// Deduplicated transfer: content shared with objects that are here need not come from a peer.
extension BlobStore {
  /// Minimum size of objects that are chunked: those stored in files of their own.
  package static let minChunkedBytes: UInt64 = 4 << 20
  /// Average size of a chunk.
  static let chunkBytes = 32 << 10
  /// Maximum bytes of objects that are newly chunked for one transfer; the most recently used first.
  static let maxChunkedBytes: UInt64 = 8 << 30

  /// The chunks of an object from `offset` on, about `bytes` of it.
  package func recipe(
    of reference: BlobReference, from offset: UInt64, bytes: UInt64
  ) throws(StoreError) -> BlobRecipe {
    let reader = try reader(reference)
    var recipe = BlobRecipe(offset: offset, chunks: [])
    try Self.eachChunk(of: reader, from: offset, upTo: offset + bytes) { chunk, _ in
      recipe.chunks.append(chunk)
    }
    return recipe
  }

  /// Cuts an object from `offset` on, up to the first cut at or after `end`.
  private static func eachChunk(
    of reader: BlobReader, from offset: UInt64, upTo end: UInt64,
    _ body: (BlobChunk, UInt64) throws(StoreError) -> Void
  ) throws(StoreError) {
    var chunker = ContentChunker(average: chunkBytes)
    // Bytes of the unfinished chunk.
    var open: [UInt8] = []
    var (position, start) = (offset, offset)
    while position < reader.size, start < end {
      let piece = try reader.read(pieceBytes, at: position)
      guard !piece.isEmpty else { throw reader.quarantine() }
      var used = 0
      for cut in chunker.feed(piece.span) {
        let stop = Int(offset + UInt64(cut) - position)
        let chunk: BlobChunk
        if open.isEmpty {
          chunk = BlobChunk(of: piece.span.extracting(used..<stop))
        } else {
          open.append(contentsOf: piece[used..<stop])
          chunk = BlobChunk(of: open)
          open.removeAll(keepingCapacity: true)
        }
        try body(chunk, start)
        (used, start) = (stop, start + UInt64(chunk.count))
        if start >= end { return }
      }
      open.append(contentsOf: piece[used...])
      position += UInt64(piece.count)
    }
    if !open.isEmpty, start < end { try body(BlobChunk(of: open), start) }
  }

  /// Whether there is an object that may share chunks with one of `size` bytes.
  package func mayShareChunks(size: UInt64) throws(StoreError) -> Bool {
    guard size > Self.minChunkedBytes, !readOnly else { return false }
    return ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.hasObject(from: Self.minChunkedBytes)
    }
      ?? false
  }

  /// Finds the chunks of a recipe in all objects here, after chunking objects that are not yet chunked.
  package func match(_ recipe: BlobRecipe) throws(StoreError) -> BlobMatch {
    try requireWritable()
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in try chunkObjects(catalogue) }
    var match = BlobMatch()
    match.end = recipe.offset
    let keys = keys.present()
    let found = ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.locations(ofChunks: recipe.chunks.map { Self.chunkKey($0, keys) })
    }
    for (index, chunk) in recipe.chunks.enumerated() {
      if let place = found?[index], place.count == chunk.count {
        match.copies.append(
          BlobMatch.Copy(chunk: chunk, offset: match.end, source: place.object, place: place.offset))
      } else if let last = match.missing.last, last.end == match.end {
        match.missing[match.missing.count - 1].count += UInt64(chunk.count)
      } else {
        match.missing.append(BlobPart(offset: match.end, count: UInt64(chunk.count)))
      }
      match.end += UInt64(chunk.count)
    }
    return match
  }

  /// The key of a chunk in the catalogue; in an encrypted store it reveals nothing of the content.
  private static func chunkKey(_ chunk: BlobChunk, _ keys: BlobKeys?) -> [UInt8] {
    keys.map { Array($0.keyedHash(chunk.name).prefix(BlobChunk.nameBytes)) } ?? chunk.name
  }

  private func chunkObjects(_ catalogue: BlobCatalogue) throws(StoreError) {
    let keys = keys.present()
    var budget = Self.maxChunkedBytes
    for (name, size) in try catalogue.unchunkedObjects(from: Self.minChunkedBytes) {
      guard size <= budget else { return }
      budget -= size
      guard let file = try files.open(name), let reader = try reader(inFile: name, file) else { continue }
      let chunks = try Self.chunks(of: reader)
      try catalogue.recordChunks(chunks.map { (Self.chunkKey($0, keys), $1, $0.count) }, of: name)
    }
  }

  /// The chunks of an object, cut by all processors in parallel, because a transfer waits for this first.
  ///
  /// At the boundaries of the shares a chunk may appear twice, or differ from what the content calls for:
  /// chunks are only hints.
  private static func chunks(of reader: BlobReader) throws(StoreError) -> [(BlobChunk, UInt64)] {
    let share = max(minTaskBytes, reader.size / UInt64(Background.processors) + 1)
    let count = Int((reader.size + share - 1) / share)
    let shares = Locked([Result<[(BlobChunk, UInt64)], StoreError>](repeating: .success([]), count: count))
    Background.concurrentPerform(count) { index in
      let start = UInt64(index) * share
      let cut = Result { () throws(StoreError) in
        var chunks: [(BlobChunk, UInt64)] = []
        try eachChunk(of: reader, from: start, upTo: min(start + share, reader.size)) {
          chunks.append(($0, $1))
        }
        return chunks
      }
      shares.withLock { $0[index] = cut }
    }
    var chunks: [(BlobChunk, UInt64)] = []
    for share in shares.withLock({ $0 }) { chunks += try share.get() }
    return chunks
  }

  /// Minimum bytes per parallel task.
  static let minTaskBytes: UInt64 = 16 << 20

  /// Continues a transfer from objects that are here, from its end up to `end` or the first missing chunk.
  /// Returns the bytes of the object now here.
  package func assemble(
    _ hash: BlobHash, _ match: BlobMatch, upTo end: UInt64
  ) throws(StoreError) -> UInt64 {
    var held = try partialSize(hash)
    var readers: [BlobHash: BlobReader] = [:]
    var pending: [UInt8] = []
    func flush() throws(StoreError) {
      guard !pending.isEmpty else { return }
      try append(pending, to: hash, at: held)
      held += UInt64(pending.count)
      pending = []
    }
    var copies = match.copies[match.copies.partitioningIndex { $0.offset + UInt64($0.chunk.count) > held }...]
    while let first = copies.first {
      let position = held + UInt64(pending.count)
      guard position < end, first.offset <= position else { break }
      let run = Self.run(of: copies, upTo: end)
      copies = copies[run.endIndex...]
      let count = run.reduce(0) { $0 + $1.chunk.count }
      var bytes = bytes(of: run, count, &readers)
      let isWhole = bytes.count == count
      if position > first.offset { bytes.removeFirst(min(Int(position - first.offset), bytes.count)) }
      if pending.isEmpty { pending = bytes } else { pending.append(contentsOf: bytes) }
      guard isWhole else {
        // Removed or changed: forget the chunks of that object.
        ignoringCatalogueErrors { (catalogue) throws(StoreError) in
          try catalogue.forgetChunks(of: first.source)
        }
        break
      }
      if pending.count >= Self.pieceBytes / 2 { try flush() }
    }
    try flush()
    return held
  }

  /// The longest run of copies from the start that are also contiguous in one source object, up to about
  /// `pieceBytes` and before `end`.
  private static func run(
    of copies: ArraySlice<BlobMatch.Copy>, upTo end: UInt64
  ) -> ArraySlice<BlobMatch.Copy> {
    var count = 0
    var (offset, place, bytes) = (UInt64(0), UInt64(0), 0)
    for copy in copies {
      let continues =
        copy.source == copies[copies.startIndex].source && copy.offset == offset && copy.place == place
        && copy.offset < end && bytes + copy.chunk.count <= pieceBytes
      guard count == 0 || continues else { break }
      (count, bytes) = (count + 1, bytes + copy.chunk.count)
      (offset, place) = (copy.offset + UInt64(copy.chunk.count), copy.place + UInt64(copy.chunk.count))
    }
    return copies.prefix(count)
  }

  /// The bytes of contiguous copies, `count` in all, up to the first that fails verification.
  private func bytes(
    of run: ArraySlice<BlobMatch.Copy>, _ count: Int, _ readers: inout [BlobHash: BlobReader]
  ) -> [UInt8] {
    guard let first = run.first, let reader = readers[first.source] ?? (try? reader(named: first.source))
    else { return [] }
    readers[first.source] = reader
    guard let bytes = try? reader.read(count, at: first.place) else { return [] }
    var sound = 0
    for copy in run {
      let end = sound + copy.chunk.count
      guard end <= bytes.count, BlobChunk(of: bytes.span.extracting(sound..<end)) == copy.chunk else { break }
      sound = end
    }
    return sound == bytes.count ? bytes : Array(bytes[..<sound])
  }
}

extension Array {
  /// The first index from which `isIn` holds; it must then hold for all later elements.
  fileprivate func partitioningIndex(_ isIn: (Element) -> Bool) -> Int {
    var (low, high) = (0, count)
    while low < high {
      let middle = (low + high) / 2
      if isIn(self[middle]) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}

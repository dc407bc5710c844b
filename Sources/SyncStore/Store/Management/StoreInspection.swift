/// Reads a store's files without opening the store, for reports on one that may be damaged. Takes no lock,
/// repairs and changes nothing, and reads neither keys nor values.
package struct StoreInspection {
  /// A named figure of a header.
  package struct Field: Equatable, Sendable {
    /// Its name.
    package let name: String
    /// Its value.
    package let value: UInt64
  }

  /// A file with a header.
  package struct HeaderReport: Equatable, Sendable {
    /// The file's name.
    package let name: String
    /// Its size in bytes.
    package let bytes: Int
    /// Whether the header can be trusted: "whole", or what is wrong with it.
    package let state: String
    /// The figures in the header; empty if it cannot be read.
    package let fields: [Field]
  }

  /// The catalogue of large values.
  package struct CatalogueReport: Equatable, Sendable {
    /// Problems that SQLite finds; empty if none.
    package let problems: [String]
    /// The number of rows of each table.
    package let rows: [Field]
  }

  /// The directory, without symbolic links.
  package let path: String
  private let storage: any Storage

  /// The store in that directory.
  ///
  /// - Throws: `.inputOutput` if the path cannot be resolved.
  package init(at path: String) throws(StoreError) {
    storage = Environment.real().storage
    self.path = try storage.canonicalPath(of: path)
  }

  /// The files of the store: paths within its directory, and sizes in bytes.
  ///
  /// - Throws: `.inputOutput` if the directory is missing or cannot be listed.
  package func files() throws(StoreError) -> [Field] {
    try Store.files(at: path, storage).map { file in
      Field(name: String(file.path.dropFirst(path.count + 1)), value: UInt64(max(0, file.size)))
    }
  }

  /// The segments of the journal, in the order of their names.
  ///
  /// - Throws: `.inputOutput` if the journal cannot be listed.
  package func segments() throws(StoreError) -> [HeaderReport] {
    let journal = path + "/" + StoreLayout.journal
    var reports: [HeaderReport] = []
    for name in try storage.list(journal) where SegmentName(name) != nil {
      do throws(StoreError) {
        let file = try storage.open(name, beneath: journal, .readOnly)
        let page = try file.read(SegmentHeader.length, at: 0)
        reports.append(Self.report(name, bytes: try file.sizeAtOpening, SegmentHeader.read(page)))
      } catch {
        reports.append(HeaderReport(name: name, bytes: 0, state: error.message, fields: []))
      }
    }
    return reports
  }

  private static func report(_ name: String, bytes: Int, _ reading: SegmentHeader.Reading) -> HeaderReport {
    switch reading {
    case .blank: return HeaderReport(name: name, bytes: bytes, state: "never written", fields: [])
    case .bad: return HeaderReport(name: name, bytes: bytes, state: "both copies are damaged", fields: [])
    case .newer(let version):
      return HeaderReport(name: name, bytes: bytes, state: "of newer version \(version)", fields: [])
    case .whole(let header, let isDamaged):
      // Salts stay out: those of an encrypted segment belong to its cipher.
      let fields: [(String, UInt64)] = [
        ("number", UInt64(header.number)), ("first_covered", UInt64(header.covered.lowerBound)),
        ("last_covered", UInt64(header.covered.upperBound)), ("base_position", header.basePosition),
        ("size", UInt64(header.size)), ("closed_length", UInt64(header.closedLength)),
        ("predecessor_length", UInt64(header.predecessor.length)),
        ("predecessor_durable", UInt64(header.predecessor.durable)), ("created_ms", header.created),
        ("is_reserve", header.isReserve ? 1 : 0), ("is_for_compaction", header.isForCompaction ? 1 : 0),
        ("key_generation", UInt64(header.generation)), ("compacted_at", header.compactedAt),
        ("unknown_features", UInt64(header.unknownToWriters)),
      ]
      return HeaderReport(
        name: name, bytes: bytes, state: isDamaged ? "one of two copies is damaged" : "whole",
        fields: fields.map { Field(name: $0.0, value: $0.1) })
    }
  }

  /// The header of the index.
  ///
  /// - Throws: `.inputOutput` if there is no index; `.damaged`, `.newerFormat` if its header cannot be read.
  package func index() throws(StoreError) -> HeaderReport {
    typealias Offset = IndexLayout.Header
    let file = try storage.open("index", beneath: path, .readOnly)
    let page = try file.read(MappedPages.pageBytes, at: 0)
    let header = try IndexHeader(Array(page.prefix(Offset.fixedLength)), path: path + "/index")
    func word(_ offset: Int) -> UInt64 {
      page.dropFirst(offset).prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    // The upper byte of a checked word is its check.
    let number: UInt64 = (1 << 56) - 1
    let fields: [(String, UInt64)] = [
      ("is_encrypted", header.check == nil ? 0 : 1),
      ("is_of_this_file", header.isOf(try file.status()) ? 1 : 0),
      ("depth", (word(Offset.depth) & 0xFF) &- 1), ("intent", word(Offset.intent) & number),
      ("keys", word(Offset.count) & number), ("applied_segment", word(Offset.applied) >> 32),
      // Bit 0 makes the number of ones odd.
      ("applied_offset", word(Offset.applied) & 0xFFFF_FFFE),
      ("frontier_page", word(Offset.frontier) & number),
      ("is_closed_cleanly", word(Offset.clean) == IndexLayout.clean ? 1 : 0),
    ]
    return HeaderReport(
      name: "index", bytes: try file.sizeAtOpening, state: "whole",
      fields: fields.map { Field(name: $0.0, value: $0.1) })
  }

  /// The catalogue of large values; nil if the store has none.
  ///
  /// - Throws: `.damaged`, `.foreignFile`, `.newerFormat`, `.inputOutput` if it cannot be read; `.busy` if it
  ///   was not closed, and no process has it open.
  package func catalogue() throws(StoreError) -> CatalogueReport? {
    let files = BlobFiles(storage: storage, directory: path + "/" + StoreLayout.blobs)
    guard try storage.status(files.path("catalogue.sqlite")) != nil else { return nil }
    let catalogue = BlobCatalogue(files, readOnly: true) { 0 }
    return CatalogueReport(problems: try catalogue.check(), rows: try catalogue.rowCounts())
  }
}

extension BlobCatalogue {
  /// The number of rows of each table.
  fileprivate func rowCounts() throws(StoreError) -> [StoreInspection.Field] {
    try perform { (database) throws(StoreError) in
      var counts: [StoreInspection.Field] = []
      for table in ["object", "holder", "chunk", "cut"] {
        let rows = try database.run("SELECT count(*) FROM \(table)")[0][0].integer
        counts.append(StoreInspection.Field(name: table, value: UInt64(max(0, rows))))
      }
      return counts
    }
  }
}

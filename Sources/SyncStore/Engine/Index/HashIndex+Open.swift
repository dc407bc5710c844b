private import Synchronization

/// The store and boot that a new index belongs to, and the secrets that key its hash.
///
/// An index of another store, or keyed by another secret, is not trusted.
package struct IndexIdentity: Sendable {
  /// The store whose keys it has.
  var store: StoreID
  /// Identifies this boot of the machine; 0 if unknown.
  var boot: UInt64
  /// 16 random bytes that key the hash, in an encrypted store together with `storeSecret`.
  var secret: [UInt8]
  /// The index secret of an encrypted store; nil for an unencrypted one.
  var storeSecret: [UInt8]?
}

/// Creating, validating, closing and replacing an index.
extension HashIndex {
  /// The file's name in the store's directory.
  package static let fileName = "index"

  /// Result of `open`.
  package enum OpenResult {
    /// An index whose content is valid.
    case trusted(HashIndex)
    /// A file that must be rebuilt, and why.
    case distrusted(String)
    /// No file.
    case missing
  }

  /// Opens the index at `path`. It is trusted if it was closed cleanly, or if boot and file system are the
  /// same as when it was written: the kernel keeps the stores of a killed process, but not those from before
  /// a power failure. `boot` 0 is an unknown boot, never equal to any. Takes time independent of the number
  /// of keys; changes nothing. `storeSecret` is the secret of an encrypted store, nil for an unencrypted one.
  ///
  /// Throws `.newerFormat` for an index of a newer program, and errors of the operating system.
  package static func open(
    at path: String, _ storage: any Storage, store: StoreID, boot: UInt64, storeSecret: [UInt8]? = nil,
    writable: Bool
  ) throws(StoreError) -> OpenResult {
    guard let file = try storage.openIfPresent(path, writable ? .readWrite : .readOnly) else {
      return .missing
    }
    let status = try file.statusAtOpening
    let directory: HashIndex
    do throws(StoreError) {
      let known = try IndexHeader(file.read(IndexLayout.Header.fixedLength, at: 0), path: path)
      guard known.store == store else { return .distrusted("it is of another store") }
      guard known.isOf(status) else { return .distrusted("it is a copy") }
      let keys = IndexKeys(random: known.secret, secret: storeSecret)
      guard known.check == keys.check else { return .distrusted("its keys are hashed under another secret") }
      directory = try HashIndex(file, writable: writable, known, seed: keys.seed)
      guard directory.isClean || known.boot == boot && boot != 0 && known.fileSystem == status.fileSystem
      else { return .distrusted("it was in use when the machine stopped") }
      directory.boot = boot
      try directory.checkHeader()
    } catch  where error.code == .damaged || error.code == .closed {
      return .distrusted("its header is damaged")
    }
    return .trusted(directory)
  }

  /// Creates an empty index next to `path`, under a temporary name until `install`. Pages for `expected` keys
  /// are allocated at once, which is faster than splitting them one by one.
  package static func create(
    at path: String, _ storage: any Storage, identity: IndexIdentity, expected: Int = 0,
    maximumDepth: Int = 22
  ) throws(StoreError) -> HashIndex {
    let temporary = path + ".new"
    _ = try storage.remove(temporary)
    return try create(
      on: storage.open(temporary, .create), identity: identity, expected: expected,
      maximumDepth: maximumDepth)
  }

  /// Creates an empty index in an empty file.
  static func create(
    on file: any StorageFile, identity: IndexIdentity, expected: Int = 0, maximumDepth: Int = 22
  ) throws(StoreError) -> HashIndex {
    precondition(identity.secret.count == 16, "a secret of 16 bytes")
    try file.allocate(to: Int(MappedPages.chunk(of: 0).upperBound) * MappedPages.pageBytes)
    let keys = IndexKeys(random: identity.secret, secret: identity.storeSecret)
    let known = IndexHeader(
      store: identity.store, boot: identity.boot, secret: identity.secret, check: keys.check,
      try file.status())
    try file.write(known.bytes, at: 0)
    let directory = try HashIndex(
      file, writable: true, known, seed: keys.seed, maximumDepth: maximumDepth)
    directory.boot = identity.boot
    try directory.format(expected: expected)
    return directory
  }

  /// Renames a new index to its final name, durably, and retires the file that had the name: processes that
  /// still use it get an error that says so. Only for the holder of the writers' mutex.
  package func install(at path: String, _ storage: any Storage) throws(StoreError) {
    // Open the old file first: after the rename nothing it needs may fail, or processes that have the old
    // file would continue with it.
    let old = try storage.status(path) == nil ? nil : try Self.header(of: storage.open(path, .readWrite))
    try storage.rename(path + ".new", to: path)
    if let old { Self.retire(old) }
    // Otherwise the old file could reappear after a power loss, and be trusted although the journal continued
    // without it.
    try storage.syncDirectory(DiskStorage.directory(of: path))
  }

  /// Retires this index, when the process continues without it.
  func retire() { write(CheckedWord.retired, to: header, IndexLayout.Header.depth) }

  /// Retires the file at `path`: processes that have it open find nothing any more, but get an error that
  /// says so.
  static func retire(at path: String, _ storage: any Storage) throws(StoreError) {
    if let header = try header(of: storage.open(path, .readWrite)) { retire(header) }
  }

  /// The first page of an index; nil if the file is no index.
  private static func header(of file: any StorageFile) throws(StoreError) -> Mapping? {
    guard try file.status().size >= MappedPages.pageBytes, try file.read(8, at: 0) == IndexLayout.magic
    else { return nil }
    return try file.map(MappedPages.pageBytes, writable: true)
  }

  private static func retire(_ header: Mapping) {
    header.withAtomic(IndexLayout.Header.depth) { $0.store(CheckedWord.retired, ordering: .releasing) }
  }

  /// Must precede the first change. After a clean close, or in a new boot, it durably marks the file as in
  /// use: one sync of one page. Otherwise it costs nothing.
  package func beginWriting() throws(StoreError) {
    guard !isWriting else { return }
    if isClean || known.boot != boot {
      known = IndexHeader(
        store: known.store, boot: boot, secret: known.secret, check: known.check, try file.status())
      write(IndexLayout.notClean, to: header, IndexLayout.Header.clean)
      try file.write(known.bytes, at: 0)
      try file.sync()
    }
    isWriting = true
  }

  /// Syncs everything, then marks the file as cleanly closed. Only for a writer with no other process using
  /// the file. A failed sync leaves it as if its process had been killed.
  package func close() throws(StoreError) {
    guard isWriting, try checkedWord(IndexLayout.Header.intent) == 0 else { return }
    try file.sync()
    write(IndexLayout.clean, to: header, IndexLayout.Header.clean)
    try file.sync()
    isWriting = false
  }

  /// The 16 random bytes of its header. In an unencrypted store they key the hash.
  package var secret: [UInt8] { known.secret }

  /// True if the hash is keyed by a secret that is not in the file.
  var isEncrypted: Bool { known.check != nil }

  /// The hash of a key, keyed by the seed.
  @inline(__always)
  package func hash(_ key: RawSpan) -> UInt64 { XXH3.hash64(key, seed: seed) }

  /// The hash of a key.
  @inline(__always)
  func hash(_ key: Span<UInt8>) -> UInt64 { XXH3.hash64(key, seed: seed) }

  /// True if it was not closed cleanly.
  var wasInUse: Bool { !isClean }

  /// True if a writer died in the middle of a change.
  var isInterrupted: Bool { get throws(StoreError) { try checkedWord(IndexLayout.Header.intent) != 0 } }

  private var isClean: Bool { header.load(IndexLayout.Header.clean) == IndexLayout.clean }

  private func checkHeader() throws(StoreError) {
    _ = try (depth(), count, applied)
    _ = try (checkedWord(IndexLayout.Header.intent), checkedWord(IndexLayout.Header.operand))
    // Pages are allocated before they are named here. The next one is, too, wherever it is: not far past the
    // end.
    let (spare, frontier) = try (checkedWord(IndexLayout.Header.spare), frontier())
    guard try reaches(max(Int(spare >> 24), Int(frontier))) else { throw damaged() }
  }

  private func format(expected: Int) throws(StoreError) {
    header.store(IndexLayout.notClean, at: IndexLayout.Header.clean)
    header.store(CheckedWord.encodeDepth(0), at: IndexLayout.Header.depth)
    header.store(Intent.none, at: IndexLayout.Header.intent)
    header.store(CheckedWord.encode(0), at: IndexLayout.Header.operand)
    header.store(CheckedWord.encode(0), at: IndexLayout.Header.count)
    header.store(CheckedWord.withOddParity(0), at: IndexLayout.Header.applied)
    header.store(CheckedWord.encode(0), at: IndexLayout.Header.spare)
    header.store(CheckedWord.encode(UInt64(IndexLayout.firstDirectoryPage)), at: IndexLayout.Header.parts)
    let first = IndexLayout.firstDirectoryPage + 1
    header.store(CheckedWord.encode(UInt64(first) + 1), at: IndexLayout.Header.frontier)
    let page = try pages.page(first)
    clear(page, first, prefix: 0)
    page.store(Self.head(count: 0, depth: 0), at: IndexLayout.Page.head)
    try entry(0).store(CheckedWord.entry(first))
    isWriting = true
    // Random variation alone brings few pages from nine tenths to the number at which they are split.
    var depth = 0
    while depth < maximumDepth, expected >> depth > IndexLayout.splitAt * 9 / 10 {
      for index in 0..<UInt32(1) << UInt32(depth) {
        let number = try self.page(try entry(index).load())
        try split(number, page: try pages.page(number), depth: depth)
      }
      depth += 1
    }
  }
}

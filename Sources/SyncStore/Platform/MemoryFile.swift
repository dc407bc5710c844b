/// Process memory instead of a file: for an index that must stay private, or that no disk has room for.
///
/// Invariant: each mapped part keeps its address as long as this lives; mapping it again gives the same
/// memory.
final class MemoryFile: StorageFile {
  let path: String

  private struct State {
    var size = 0
    var parts: [Int: Mapping] = [:]
  }
  private let state = LockedField(State(), rank: .storage)

  /// An empty file; errors name it by `path`.
  init(path: String) { self.path = path }

  func status() throws(StoreError) -> FileStatus {
    FileStatus(
      kind: .file, size: state.withLock { $0.size }, links: 1,
      identity: FileIdentity(inode: 0, fileSystem: 0, birth: 0), owner: SystemCall.userID, permissions: 0o600)
  }

  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8] {
    try map(0..<max(count + offset, 1), writable: false).bytes(offset..<(offset + count))
  }

  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError) {
    try map(0..<max(bytes.count + offset, 1), writable: true).store(bytes, at: offset)
  }

  func resize(to size: Int) throws(StoreError) { state.withLock { $0.size = size } }
  func allocate(to size: Int) throws(StoreError) { state.withLock { $0.size = max($0.size, size) } }
  func sync() throws(StoreError) {}

  /// The part that begins where `range` does. It must not end after the part that was mapped there first.
  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping {
    state.withLock { state in
      if let part = state.parts[range.lowerBound] {
        precondition(part.count >= range.count, "a part that grows")
        return part
      }
      // The caller maps the first part for its header before it maps it whole.
      let count = range.lowerBound == 0 ? max(range.count, Self.firstPart) : range.count
      let part = Mapping.anonymous(count)
      state.parts[range.lowerBound] = part
      return part
    }
  }

  private static let firstPart = Int(MappedPages.chunk(of: 0).upperBound) * MappedPages.pageBytes

  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool { true }
  func isLocked(byte: Int) throws(StoreError) -> Bool { false }
  func mark() {}
  var isMarked: Bool { false }
}

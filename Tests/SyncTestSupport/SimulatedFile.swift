import Glibc
import SyncStore

/// An open file of `SimulatedStorage`.
final class SimulatedFile: StorageFile, @unchecked Sendable {
  let path: String
  private let storage: SimulatedStorage
  // Accessed only with the storage's lock held.
  private let node: SimulatedNode
  private let handle: UInt64
  private let life: Int
  private let writable: Bool
  /// Status at the open: like on a real disk, a caller that uses it does not see later changes.
  private let found: FileStatus

  init(
    _ storage: SimulatedStorage, _ node: SimulatedNode, path: String, handle: UInt64, life: Int,
    writable: Bool
  ) {
    (self.storage, self.node, self.path, self.handle) = (storage, node, path, handle)
    (self.life, self.writable) = (life, writable)
    found = node.status
  }

  deinit {
    try? storage.locked { _ throws(StoreError) in
      for byte in node.locks.keys { node.locks[byte]?[handle] = nil }
    }
  }

  func status() throws(StoreError) -> FileStatus {
    try locked { _, node throws(StoreError) in node.status }
  }

  var sizeAtOpening: Int { found.size }

  var statusAtOpening: FileStatus { found }

  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8] {
    try locked { _, node throws(StoreError) in node.read(count, at: offset) }
  }

  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError) {
    try changing("cannot write to it") { state, node throws(StoreError) in
      let end = state.reserve(node, upTo: offset + bytes.count)
      node.write(bytes.prefix(max(0, end - offset)), at: offset)
      if end < offset + bytes.count { throw failure("cannot write to it", path, ENOSPC) }
    }
  }

  func resize(to size: Int) throws(StoreError) {
    try changing("cannot change its size") { state, node throws(StoreError) in
      guard size <= node.limit else { throw failure("cannot change its size", path, EFBIG) }
      node.resize(to: size)
      state.trim(node)
    }
  }

  func allocate(to size: Int) throws(StoreError) {
    try changing("cannot find space") { state, node throws(StoreError) in
      guard size > node.size else { return }
      if state.reserve(node, upTo: size) < size {
        state.trim(node)
        throw failure("cannot find space for \(size - node.size) bytes", path, ENOSPC)
      }
      node.resize(to: size)
    }
  }

  /// Some of the dirty pages reach the disk, in any order, and others do not. A failure is reported by the
  /// next sync.
  func startWriteback() {
    try? locked { state, node throws(StoreError) in
      if state.syncFails(path) { return node.failWriteBack() }
      if !state.lies { node.writeBack(within: 0..<Int.max) }
    }
  }

  /// As `startWriteback`, but also reports a failure immediately.
  func writeBack(_ range: Range<Int>) throws(StoreError) {
    try locked { state, node throws(StoreError) in
      if state.syncFails(path) {
        node.failWriteBack()
        throw failure("cannot write it to the disk", path, EIO)
      }
      if !state.lies { node.writeBack(within: range) }
    }
  }

  func sync() throws(StoreError) { try sync(within: 0..<Int.max) }

  func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError) { try sync(within: range) }

  private func sync(within range: Range<Int>) throws(StoreError) {
    try locked { state, node throws(StoreError) in
      if node.takeWriteBackFailure() || state.syncFails(path) {
        node.failSync()
        throw failure("cannot make it durable", path, EIO)
      }
      if !state.lies { node.sync(within: range) }
    }
  }

  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping {
    try locked { _, node throws(StoreError) in
      // The kernel allows mapping beyond the end and kills the process at access: here it is an immediate
      // error.
      guard !range.isEmpty, range.lowerBound.isMultiple(of: SimulatedMemory.pageBytes),
        range.upperBound <= SimulatedMemory.rounded(node.size), !writable || self.writable
      else { throw failure("cannot map it", path, EINVAL) }
      return node.map(range, writable: writable)
    }
  }

  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool {
    // As fcntl(2) does.
    guard kind != .exclusive || writable else { throw failure("cannot lock it", path, EBADF) }
    return try locked { _, node throws(StoreError) in
      let others = (node.locks[byte] ?? [:]).filter { $0.key != handle }.values
      let free =
        switch kind {
        case .none: true
        case .shared: !others.contains(.exclusive)
        case .exclusive: others.isEmpty
        }
      guard free else {
        precondition(
          !wait, "simulated storage: waiting for the lock on byte \(byte) of \(path) would never end")
        return false
      }
      node.locks[byte, default: [:]][handle] = kind == .none ? nil : kind
      return true
    }
  }

  func isLocked(byte: Int) throws(StoreError) -> Bool {
    try locked { _, node throws(StoreError) in node.locks[byte]?.contains { $0.key != handle } ?? false }
  }

  func mark() { try? locked { _, node throws(StoreError) in node.isMarked = true } }

  var isMarked: Bool { (try? locked { _, node throws(StoreError) in node.isMarked }) ?? false }

  private func changing(
    _ what: String, _ body: (inout SimulatedStorage.State, SimulatedNode) throws(StoreError) -> Void
  ) throws(StoreError) {
    guard writable else { throw failure(what, path, EBADF) }
    try locked(body)
  }

  private func locked<Result: Sendable>(
    _ body: (inout SimulatedStorage.State, SimulatedNode) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try storage.locked { state throws(StoreError) in
      guard state.life == life else {
        throw StoreError(.inputOutput, "belongs to a process that is no more", path: path, errno: EBADF)
      }
      return try body(&state, node)
    }
  }
}

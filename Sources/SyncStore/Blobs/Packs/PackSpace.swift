internal import Synchronization

/// The limits for the total size of a set's files, and the trash that counts towards them.
///
/// Lock-free: a new limit may take effect one pack late.
struct PackSpace: ~Copyable, Sendable {
  private let fileLimit = Atomic<Int>(.max)
  private let movingLimit = Atomic<Int>(.max)
  private let trash = Atomic<Int>(0)

  /// Total size beyond which adding fails; `Int.max` if it is not limited.
  var limit: Int { fileLimit.load(ordering: .relaxed) }

  /// Total size up to which live objects are moved: more than `limit`, because making room needs some itself.
  var limitForMoving: Int { movingLimit.load(ordering: .relaxed) }

  /// Bytes of files that were moved to the trash and are still to be removed.
  var trashBytes: Int { trash.load(ordering: .relaxed) }

  func setLimit(_ limit: Int, forMoving: Int) {
    fileLimit.store(limit, ordering: .relaxed)
    movingLimit.store(forMoving, ordering: .relaxed)
  }

  func setTrashBytes(_ bytes: Int) { trash.store(bytes, ordering: .relaxed) }

  func addTrashBytes(_ bytes: Int) { trash.add(bytes, ordering: .relaxed) }
}

/// The stores that this process has open: a directory opened twice is the same instance (F96).
final class StoreRegistry: Sendable {
  static let shared = StoreRegistry()

  private struct Place: Hashable {
    var storage: ObjectIdentifier
    var process: Int
    var fileSystem: UInt64
    var inode: UInt64
  }

  private struct Held {
    weak var store: Store?
  }

  private let stores = Locked<[Place: Held]>([:])
  /// Stores opened so far; held while one is being opened.
  private let openings = Locked(0)

  /// One after the other: what one thread opens, the next one finds.
  func inTurn(_ open: () throws(StoreError) -> Store) throws(StoreError) -> Store {
    try openings.withLock { openings throws(StoreError) in
      openings += 1
      return try open()
    }
  }

  /// The live instance of the directory with this status, if this process has one.
  func find(_ status: FileStatus, _ environment: Environment) -> Store? {
    stores.withLock { $0[Self.place(status, environment)]?.store }
  }

  func remember(_ store: Store, _ status: FileStatus) {
    stores.withLock { stores in
      stores = stores.filter { $0.value.store != nil }
      stores[Self.place(status, store.environment)] = Held(store: store)
    }
  }

  func forget(_ store: Store) {
    stores.withLock { $0 = $0.filter { $0.value.store != nil && $0.value.store !== store } }
  }

  private static func place(_ status: FileStatus, _ environment: Environment) -> Place {
    let storage = environment.storage
    // All real storages are one and the same disk.
    let name = storage is DiskStorage ? ObjectIdentifier(DiskStorage.self) : ObjectIdentifier(storage)
    return Place(
      storage: name, process: environment.process, fileSystem: status.fileSystem, inode: status.inode)
  }
}

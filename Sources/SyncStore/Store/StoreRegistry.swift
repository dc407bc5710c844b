/// The stores that this process has open: a directory opened twice is the same instance (F96).
final class StoreRegistry: Sendable {
  static let shared = StoreRegistry()

  private struct Place: Equatable {
    var storage: ObjectIdentifier
    var process: Int
    var fileSystem: UInt64
    var inode: UInt64
  }

  private struct Held {
    let place: Place
    weak var store: Store?
  }

  /// Few, so no table: to have one made is the longest step of a process's first opening.
  private struct Stores {
    var held: [Held] = []
  }

  private let stores = LockedField(Stores())
  /// Stores opened so far; held while one is being opened.
  private let openings = LockedField(0)

  /// One after the other: what one thread opens, the next one finds.
  func inTurn(_ open: () throws(StoreError) -> Store) throws(StoreError) -> Store {
    try openings.withLock { openings throws(StoreError) in
      openings += 1
      return try open()
    }
  }

  /// The live instance of the directory with this status, if this process has one.
  func find(_ status: FileStatus, _ environment: Environment) -> Store? {
    let place = Self.place(status, environment)
    return stores.withLock { stores in stores.held.first { $0.place == place }?.store }
  }

  func remember(_ store: Store, _ status: FileStatus) {
    let place = Self.place(status, store.environment)
    stores.withLock { stores in
      stores.held.removeAll { $0.store == nil || $0.place == place }
      stores.held.append(Held(place: place, store: store))
    }
  }

  func forget(_ store: Store) {
    stores.withLock { $0.held.removeAll { $0.store == nil || $0.store === store } }
  }

  private static func place(_ status: FileStatus, _ environment: Environment) -> Place {
    let storage = environment.storage
    // All real storages are one and the same disk.
    let name = storage is DiskStorage ? ObjectIdentifier(DiskStorage.self) : ObjectIdentifier(storage)
    return Place(
      storage: name, process: environment.process, fileSystem: status.fileSystem, inode: status.inode)
  }
}

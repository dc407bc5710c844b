import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// A storage under test, and a working directory in it.
struct StorageUnderTest: Sendable {
  enum Kind: CaseIterable, Sendable { case disk, simulated }

  let storage: any Storage
  let root: String
  private let keeper: TemporaryDirectory?

  init(_ kind: Kind) throws {
    switch kind {
    case .disk:
      let directory = TemporaryDirectory()
      (storage, root, keeper) = (DiskStorage(), directory.path, directory)
    case .simulated:
      (storage, root, keeper) = (SimulatedStorage(), "/volume", nil)
      _ = try storage.createDirectory(root)
    }
  }
}

/// The contract of every storage: the simulated one can replace the real one only if both pass.
@Suite struct StorageConformanceTests {
  @Test(
    "Directories are created once, and listed in order", arguments: StorageUnderTest.Kind.allCases)
  func directories(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    #expect(try test.storage.createDirectory(test.root + "/d"))
    #expect(try !test.storage.createDirectory(test.root + "/d"))
    for name in ["b", "a", "c"] { _ = try test.storage.open(test.root + "/d/" + name, .create) }
    #expect(try test.storage.list(test.root + "/d") == ["a", "b", "c"])
    #expect(throws: StoreError.self) { try test.storage.list(test.root + "/none") }
    #expect(throws: StoreError.self) { try test.storage.createDirectory(test.root + "/none/d") }
    try test.storage.syncDirectory(test.root + "/d")
    #expect(throws: StoreError.self) { try test.storage.syncDirectory(test.root + "/none") }
  }

  @Test(
    "Two names are exchanged atomically; only an empty directory is removed, a tree recursively",
    arguments: StorageUnderTest.Kind.allCases)
  func wholeDirectories(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let (one, two) = (test.root + "/one", test.root + "/two")
    for path in [one, two] { _ = try test.storage.createDirectory(path) }
    try test.storage.open(one + "/f", .create).write([1], at: 0)
    try test.storage.open(two + "/g", .create).write([2], at: 0)
    try test.storage.exchange(one, with: two)
    #expect(try test.storage.list(one) == ["g"] && test.storage.list(two) == ["f"])
    #expect(
      #expect(throws: StoreError.self) { try test.storage.exchange(one, with: one + "x") }?.errno == ENOENT)
    #expect(#expect(throws: StoreError.self) { try test.storage.removeDirectory(one) }?.errno == ENOTEMPTY)
    #expect(
      #expect(throws: StoreError.self) { try test.storage.removeDirectory(one + "/g") }?.errno == ENOTDIR)
    _ = try test.storage.createDirectory(one + "/inner")
    _ = try test.storage.open(one + "/inner/h", .create)
    try test.storage.removeTree(one, first: ["g"])
    #expect(try test.storage.status(one) == nil && test.storage.list(test.root) == ["two"])
    #expect(try !test.storage.removeDirectory(one))
    #expect(try test.storage.remove(two + "/f") && test.storage.removeDirectory(two))
  }

  @Test("Each mode opens what it names", arguments: StorageUnderTest.Kind.allCases)
  func modes(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let path = test.root + "/f"
    for mode in [OpenMode.readOnly, .readWrite] {
      #expect(throws: StoreError.self) { try test.storage.open(path, mode) }
    }
    try test.storage.open(path, .openOrCreate).write([1, 2, 3], at: 0)
    #expect(throws: StoreError.self) { try test.storage.open(path, .create) }
    #expect(try test.storage.open(path, .openOrCreate).read(9, at: 0) == [1, 2, 3])
    let reader = try test.storage.open(path, .readOnly)
    #expect(throws: StoreError.self) { try reader.write([4], at: 0) }
    #expect(try reader.read(9, at: 1) == [2, 3])
    #expect(try test.storage.status(path)?.permissions == 0o600)
  }

  @Test("Reads stop at the end, writes leave zeros before them", arguments: StorageUnderTest.Kind.allCases)
  func content(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let file = try test.storage.open(test.root + "/f", .create)
    #expect(try file.read(10, at: 0) == [])
    try file.write([7, 8], at: 5000)
    #expect(try file.status().size == 5002)
    #expect(try file.read(4, at: 4998) == [0, 0, 7, 8])
    #expect(try file.read(4, at: 5002) == [])
    try file.resize(to: 5001)
    try file.resize(to: 5003)
    #expect(try file.read(9, at: 5000) == [7, 0, 0])
    try file.allocate(to: 9000)
    #expect(try file.status().size == 9000)
    try file.allocate(to: 10)
    #expect(try file.status().size == 9000)
    try file.sync()
  }

  @Test("A mapping and the file are the same bytes", arguments: StorageUnderTest.Kind.allCases)
  func mapping(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let file = try test.storage.open(test.root + "/f", .create)
    try file.allocate(to: 8192)
    let mapping = try file.map(8192, writable: true)
    mapping.store([1, 2, 3], at: 4094)
    #expect(try file.read(5, at: 4093) == [0, 1, 2, 3, 0])
    try file.write([9], at: 4095)
    #expect(mapping.bytes(4094..<4097) == [1, 9, 3])
    let second = try test.storage.open(test.root + "/f", .readOnly).map(4096, writable: false)
    #expect(second.bytes(4094..<4096) == [1, 9])
    let part = try file.map(4096..<8192, writable: true)
    part.store([7], at: 1)
    #expect(mapping.bytes(4097..<4098) == [7])
    try file.allocate(to: 1 << 20)
    mapping.store([5], at: 0)
    #expect(try file.read(1, at: 0) == [5])
  }

  @Test("Renaming replaces, unless it must not", arguments: StorageUnderTest.Kind.allCases)
  func renaming(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let (a, b) = (test.root + "/a", test.root + "/b")
    try test.storage.open(a, .create).write([1], at: 0)
    let old = try test.storage.open(b, .create)
    try old.write([2], at: 0)
    #expect(try !test.storage.renameUnlessPresent(a, to: b))
    #expect(try test.storage.contents(of: b, limit: 9) == [2])
    try test.storage.rename(a, to: b)
    #expect(try test.storage.contents(of: b, limit: 9) == [1])
    #expect(try old.read(9, at: 0) == [2])
    #expect(try old.status().links == 0)
    #expect(try test.storage.renameUnlessPresent(b, to: a))
    #expect(try test.storage.list(test.root) == ["a"])
    #expect(throws: StoreError.self) { try test.storage.rename(b, to: a) }
    #expect(throws: StoreError.self) { try test.storage.renameUnlessPresent(b, to: a) }
  }

  @Test("A removed file has no name and stays readable while open", arguments: StorageUnderTest.Kind.allCases)
  func removing(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let file = try test.storage.open(test.root + "/f", .create)
    try file.write([1], at: 0)
    let inode = try file.status().inode
    #expect(try test.storage.status(test.root + "/f")?.inode == inode)
    #expect(try test.storage.remove(test.root + "/f"))
    #expect(try !test.storage.remove(test.root + "/f"))
    #expect(try test.storage.status(test.root + "/f") == nil)
    #expect(try file.read(1, at: 0) == [1])
    _ = try test.storage.createDirectory(test.root + "/d")
    #expect(throws: StoreError.self) { try test.storage.remove(test.root + "/d") }
  }

  @Test("Anything but a file is refused (F45)", arguments: StorageUnderTest.Kind.allCases)
  func kinds(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    _ = try test.storage.createDirectory(test.root + "/d")
    #expect(try test.storage.status(test.root + "/d")?.kind == .directory)
    for mode in [OpenMode.readOnly, .readWrite, .openOrCreate] {
      #expect(throws: StoreError.self) { try test.storage.open(test.root + "/d", mode) }
    }
    #expect(try test.storage.status(test.root + "/none") == nil)
    #expect(try test.storage.status(test.root + "/none/none") == nil)
    _ = try test.storage.open(test.root + "/f", .create)
    #expect(try test.storage.status(test.root + "/f/none") == nil)
  }

  @Test("Files are opened beneath a directory, not through links", arguments: StorageUnderTest.Kind.allCases)
  func beneath(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    _ = try test.storage.createDirectory(test.root + "/d")
    try test.storage.open("d/f", beneath: test.root, .create).write([1], at: 0)
    #expect(try test.storage.contents(of: test.root + "/d/f", limit: 9) == [1])
    let foreign = #expect(throws: StoreError.self) {
      try test.storage.open("d/f/g", beneath: test.root, .readOnly)
    }
    #expect(foreign?.code == .foreignFile)
    let missing = #expect(throws: StoreError.self) {
      try test.storage.open("d/g", beneath: test.root, .readOnly)
    }
    #expect(missing?.errno == ENOENT)
  }

  @Test("Locks belong to the open file description", arguments: StorageUnderTest.Kind.allCases)
  func locks(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    let first = try test.storage.open(test.root + "/f", .create)
    var second: (any StorageFile)? = try test.storage.open(test.root + "/f", .readWrite)
    #expect(try first.lock(byte: 0, .exclusive, wait: true))
    #expect(try second?.lock(byte: 0, .shared, wait: false) == false)
    #expect(try second?.lock(byte: 1, .exclusive, wait: true) == true)
    #expect(try first.lock(byte: 0, .shared, wait: true))
    #expect(try second?.lock(byte: 0, .shared, wait: false) == true)
    #expect(try !first.lock(byte: 0, .exclusive, wait: false))
    #expect(try !first.lock(byte: 1, .shared, wait: false))
    // Only those of others are seen, of any kind.
    #expect(try first.isLocked(byte: 0) && first.isLocked(byte: 1) && second?.isLocked(byte: 0) == true)
    #expect(try second?.isLocked(byte: 1) == false && first.isLocked(byte: 2) == false)
    second = nil
    #expect(try !first.isLocked(byte: 0) && !first.isLocked(byte: 1))
    #expect(try first.lock(byte: 0, .exclusive, wait: false))
    #expect(try first.lock(byte: 1, .exclusive, wait: false))
    #expect(try first.lock(byte: 0, .none, wait: false))
  }

  @Test("A small file is replaced atomically", arguments: StorageUnderTest.Kind.allCases)
  func replacing(_ kind: StorageUnderTest.Kind) throws {
    let test = try StorageUnderTest(kind)
    try test.storage.replace(test.root + "/f", with: [1, 2])
    try test.storage.replace(test.root + "/f", with: [3])
    #expect(try test.storage.contents(of: test.root + "/f", limit: 9) == [3])
    #expect(try test.storage.list(test.root) == ["f"])
    #expect(try test.storage.freeBytes(test.root) > 0)
  }
}

@Suite struct DiskStorageTests {
  @Test("Links, FIFOs and link targets are refused without blocking (F45, F84)")
  func planted() throws {
    let test = try StorageUnderTest(.disk)
    let disk = DiskStorage()
    _ = try disk.createDirectory(test.root + "/d")
    _ = try disk.open(test.root + "/d/f", .create)
    #expect(unsafe symlink("d", test.root + "/link") == 0)
    #expect(unsafe symlink("f", test.root + "/d/link") == 0)
    #expect(unsafe mkfifo(test.root + "/d/fifo", 0o600) == 0)
    for name in ["link/f", "d/link", "d/fifo", "../\(test.root.split(separator: "/").last ?? "")/d/f"] {
      let error = #expect(throws: StoreError.self, "\(name)") {
        try disk.open(name, beneath: test.root, .readWrite)
      }
      #expect(error?.code == .foreignFile)
    }
    let error = #expect(throws: StoreError.self) {
      try disk.open("f", beneath: test.root + "/link", .readOnly)
    }
    #expect(error?.code == .foreignFile)
    for name in ["/d/link", "/d/fifo"] {
      let error = #expect(throws: StoreError.self) { try disk.open(test.root + name, .readOnly) }
      #expect(error?.code == .foreignFile)
    }
  }
}

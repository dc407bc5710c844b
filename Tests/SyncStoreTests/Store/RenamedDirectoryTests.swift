import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// The directory of an open store is renamed, and its old name is reused.
@Suite("The directory of an open store")
struct RenamedDirectoryTests {
  let directory = TemporaryDirectory()
  var path: String { directory.path + "/store" }
  var moved: String { directory.path + "/moved" }

  static let configuration = Configuration(blobThreshold: 2000, segmentBytes: 64 << 10)

  func environment() -> Environment {
    var environment = Environment.real()
    environment.compactionMode = .onRequest
    return environment
  }

  func open(_ path: String, _ configuration: Configuration = Self.configuration) throws -> Store {
    try Store.open(at: path, configuration: configuration, environment: environment())
  }

  func create(_ configuration: Configuration = Self.configuration, id: StoreID? = nil) throws -> Store {
    try Store.create(at: path, name: nil, id: id, configuration: configuration, environment: environment())
  }

  static func value(_ number: Int, _ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) }
  }

  /// Too large for a pack: it has its own file, which the catalogue knows.
  static func large(_ number: Int) -> [UInt8] {
    [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 4_300_000 + number)
  }

  /// Small values that fill segments, packed values, and one in its own file.
  func fill(_ store: Store, _ range: Range<Int>) throws {
    for number in range { try store.put(Key("small \(number)"), Self.value(number, 900)) }
    for number in range.prefix(5) { try store.put(Key("packed \(number)"), Self.value(number, 5000)) }
    try store.put(Key("large \(range.lowerBound)"), Self.large(range.lowerBound))
  }

  func check(_ store: Store, _ range: Range<Int>) throws {
    for number in range {
      #expect(try store.get(Key("small \(number)"))?.bytes == Self.value(number, 900))
    }
    for number in range.prefix(5) {
      #expect(try store.get(Key("packed \(number)"))?.bytes == Self.value(number, 5000))
    }
    #expect(try store.get(Key("large \(range.lowerBound)"))?.bytes == Self.large(range.lowerBound))
  }

  /// All names below a directory, with the content of each file.
  func content(_ path: String) throws -> [String: Data] {
    var found: [String: Data] = [:]
    for name in FileManager.default.subpaths(atPath: path) ?? [] {
      found[name] = FileManager.default.contents(atPath: path + "/" + name) ?? Data()
    }
    return found
  }

  func copy(_ from: String, to: String) throws {
    #expect(LoopImage.run(["cp", "-a", from, to]))
  }

  /// What replaces the renamed directory.
  enum Successor: CaseIterable { case nothing, copy, emptyDirectory, file, link }

  func replace(by successor: Successor) throws {
    let files = FileManager.default
    try files.moveItem(atPath: path, toPath: moved)
    switch successor {
    case .nothing: break
    case .copy: try copy(moved, to: path)
    case .emptyDirectory: try files.createDirectory(atPath: path, withIntermediateDirectories: false)
    case .file: try Data("not a store".utf8).write(to: URL(fileURLWithPath: path))
    case .link: try files.createSymbolicLink(atPath: path, withDestinationPath: "/nowhere")
    }
  }

  @Test(
    "is renamed: all writes stay in it, and what replaces it is untouched",
    arguments: Successor.allCases, [Configuration.Mode.exclusive, .shared])
  func renamed(_ successor: Successor, _ mode: Configuration.Mode) throws {
    var configuration = Self.configuration
    configuration.mode = mode
    let store = try create(configuration)
    let actor = try store.actor
    try fill(store, 0..<40)
    // A copied directory is cut after the durable length stated by a later record: this one's own copies lack
    // it.
    try store.put("last", "1", durability: .full)
    try replace(by: successor)
    let before = try content(path)
    try fill(store, 100..<200)
    try store.sync()
    for number in 0..<20 { try store.delete(Key("small \(number)")) }
    try store.compact()
    _ = try store.trim()
    try fill(store, 300..<400)
    try check(store, 100..<200)
    #expect(try store.verify().isClean)
    try store.backUp(to: directory.path + "/saved")
    try store.close()
    #expect(try content(path) == before)

    let again = try open(moved)
    #expect(try again.actor == actor)
    for range in [100..<200, 300..<400] { try check(again, range) }
    #expect(try again.get("small 5") == nil && again.verify().isClean)
    try again.close()
    guard successor == .copy else { return }
    let other = try open(path)
    try check(other, 0..<40)
    #expect(try other.actor != actor && other.get("small 100") == nil && other.verify().isClean)
    try other.close()
  }

  @Test("is renamed: received records go into it, and so does its catalogue, opened only then")
  func syncs() throws {
    let source = try Store.create(
      at: directory.path + "/source", name: nil, id: nil, configuration: Self.configuration,
      environment: environment())
    try fill(source, 0..<60)
    let store = try create(id: source.id)
    try FileManager.default.moveItem(atPath: path, toPath: moved)
    // Not even a blob tier existed when the name changed.
    try copy(moved, to: path)
    let before = try content(path)
    try store.receive(from: source)
    for reference in try source.blobs.all() {
      let bytes = try source.blobs.read(reference.hash, offset: 0, count: Int(reference.size))
      _ = try store.blobs.put(bytes: bytes, durable: true)
    }
    try check(store, 0..<60)
    #expect(try store.digest() == source.digest())
    try store.close()
    #expect(try content(path) == before)
    let again = try open(moved)
    try check(again, 0..<60)
    #expect(FileManager.default.fileExists(atPath: moved + "/blobs/catalogue.sqlite"))
  }

  @Test("has another name: opening that gives the open instance, opening the old one the store there now")
  func instances() throws {
    let store = try create()
    try store.put("k", "1")
    try replace(by: .copy)
    #expect(try open(moved) === store)
    let other = try open(path)
    #expect(other !== store)
    try other.put("k", "2")
    try store.put("k", "3")
    #expect(try other.text("k") == "2" && store.text("k") == "3")
    try store.close()
    try other.close()
    #expect(try open(moved).text("k") == "3")
    #expect(try open(path).text("k") == "2")
  }

  @Test("has another name: a handle continues with it, and moves, removes and replaces nothing else")
  func handle() throws {
    let handle = StoreHandle.at(path, configuration: Self.configuration)
    try handle.withStore { try $0.put("k", "1") }
    try handle.backUp(to: directory.path + "/saved")
    try replace(by: .copy)
    let before = try content(path)
    try handle.withStore { try $0.put("k", "2", durability: .full) }
    let attempts: [() throws -> Void] = [
      { _ = try handle.remove() }, { _ = try handle.move(to: directory.path + "/elsewhere") },
      { _ = try handle.restore(from: directory.path + "/saved") }, { try handle.close {} },
    ]
    for attempt in attempts {
      let error = #expect(throws: StoreError.self) { try attempt() }
      #expect(error?.code == .busy && error?.message.contains("close this handle first") == true)
    }
    #expect(try content(path) == before)
    #expect(try handle.withStore { try $0.text("k") } == "2")
    try handle.close()
    #expect(try handle.withStore { try $0.text("k") } == "1")
    #expect(try handle.remove() && !FileManager.default.fileExists(atPath: path))
    #expect(try open(moved).text("k") == "2")
  }

  @Test("was given as a relative path: the store stays there when the process changes its working directory")
  func relative() throws {
    let anchored = try DiskStorage().anchored(at: directory.path)
    #expect(try anchored.createDirectory(directory.path + "/a"))
    // The directory itself, a doubled slash, its parent, and one whose name shares only a prefix.
    #expect(try anchored.status(directory.path)?.kind == .directory)
    #expect(try anchored.list(directory.path + "//a") == [])
    _ = try DiskStorage().createDirectory(directory.path + "x")
    defer { _ = try? DiskStorage().removeDirectory(directory.path + "x") }
    #expect(
      try anchored.status(directory.path + "x")?.inode == DiskStorage().status(directory.path + "x")?.inode)
    let above = DiskStorage.directory(of: directory.path)
    #expect(try anchored.status(above)?.inode == DiskStorage().status(above)?.inode)
    try anchored.syncParentDirectory(of: directory.path)
    #expect(throws: StoreError.self) { try DiskStorage().anchored(at: directory.path + "/missing") }
    try FileManager.default.createSymbolicLink(
      atPath: directory.path + "/link", withDestinationPath: directory.path + "/a")
    #expect(throws: StoreError.self) { try DiskStorage().anchored(at: directory.path + "/link") }
  }

  /// What happens to the contents of the directory.
  enum Loss: CaseIterable { case removed, movedAway, replaced, movedAndReplaced }

  @Test(
    "is emptied, or its contents are replaced: no write is acknowledged, and nothing is written there",
    arguments: Loss.allCases)
  func emptied(_ loss: Loss) throws {
    let store = try create()
    try fill(store, 0..<20)
    try store.sync()
    let other = directory.path + "/other"
    try copy(path, to: other)
    let files = FileManager.default
    try files.createDirectory(atPath: moved, withIntermediateDirectories: false)
    for name in try files.contentsOfDirectory(atPath: path) {
      switch loss {
      case .removed, .replaced: try files.removeItem(atPath: path + "/" + name)
      case .movedAway, .movedAndReplaced:
        try files.moveItem(atPath: path + "/" + name, toPath: moved + "/" + name)
      }
    }
    if loss == .replaced || loss == .movedAndReplaced {
      for name in try files.contentsOfDirectory(atPath: other) {
        try copy(other + "/" + name, to: path + "/" + name)
      }
    }
    let before = try content(path)
    let large = #expect(throws: StoreError.self) { try store.put("x", Self.value(1, 5000)) }
    #expect(large?.code == .poisoned && large?.message.contains("emptied") == true)
    #expect(#expect(throws: StoreError.self) { try store.put("y", "small") }?.code == .poisoned)
    #expect(#expect(throws: StoreError.self) { try store.sync() }?.code == .poisoned)
    try? store.close()
    #expect(try content(path) == before)
  }

  @Test(
    "is emptied: small writes fail at the next sync, or at the next segment", arguments: Loss.allCases,
    [false, true])
  func emptiedSmall(_ loss: Loss, isRotation: Bool) throws {
    let store = try create()
    try store.put("k", "1", durability: .full)
    let files = FileManager.default
    try copy(path, to: directory.path + "/other")
    for name in try files.contentsOfDirectory(atPath: path) {
      if loss == .removed || loss == .replaced {
        try files.removeItem(atPath: path + "/" + name)
      } else {
        try files.createDirectory(atPath: moved, withIntermediateDirectories: true)
        try files.moveItem(atPath: path + "/" + name, toPath: moved + "/" + name)
      }
      if loss == .replaced || loss == .movedAndReplaced {
        try copy(directory.path + "/other/" + name, to: path + "/" + name)
      }
    }
    let before = try content(path)
    // Moved files still exist, and still belong to the journal: only the next one would be elsewhere.
    if !isRotation, loss == .movedAway || loss == .movedAndReplaced {
      try store.put("k", "2", durability: .full)
    } else {
      let error = #expect(throws: StoreError.self) {
        guard isRotation else { return try store.put("k", "2", durability: .full) }
        for number in 0..<400 { try store.put(Key("\(number)"), Self.value(number, 900)) }
      }
      #expect(error?.code == .poisoned && error?.message.contains("was removed while in use") == true)
    }
    try? store.close()
    #expect(try content(path) == before)
  }

  @Test(
    "keeps its journal while its blob tier is replaced: no large value is acknowledged or written there",
    arguments: ["blobs", "blobs/packs"], [false, true])
  func exchangedTier(part: String, isRemoved: Bool) throws {
    let store = try create()
    try store.put("large", Self.value(1, 5000))
    try store.sync()
    let (here, away) = (path + "/" + part, directory.path + "/away")
    try FileManager.default.moveItem(atPath: here, toPath: away)
    if !isRemoved { try copy(away, to: here) }
    let before = try content(here)
    let writes: [() throws -> Void] = [
      { try store.put("x", Self.value(2, 5000)) },
      { try store.put("y") { writer in try writer.append(Self.value(3, 5000)) } },
      { _ = try store.blobs.put(bytes: Self.value(4, 5000), durable: true) },
      { try store.put("z", "small", durability: .full) },
    ]
    for write in writes {
      #expect(#expect(throws: StoreError.self) { try write() }?.code == .poisoned)
    }
    try? store.close()
    #expect(try content(here) == before)
    // Once it is moved back, everything acknowledged is there.
    if !isRemoved { try FileManager.default.removeItem(atPath: here) }
    try FileManager.default.moveItem(atPath: away, toPath: here)
    let again = try open(path)
    #expect(try again.get("large")?.bytes == Self.value(1, 5000) && again.get("x") == nil)
    #expect(try again.verify().isClean)
  }

  @Test("of a cache is renamed: values set later go with it")
  func cache() throws {
    let cache = try DiskCache.open(at: path)
    try cache.set("k", Self.value(1, 3000))
    try replace(by: .copy)
    let before = try content(path)
    for number in 0..<300 { try cache.set("\(number)", Self.value(number, 20_000)) }
    try cache.removeAll()
    try cache.set("l", Self.value(2, 3000))
    cache.close()
    #expect(try content(path) == before)
    let again = try DiskCache.open(at: moved)
    #expect(try again.get("l") == Self.value(2, 3000) && again.get("k") == nil)
    again.close()
  }

  @Test(
    "of a simulated machine is renamed before a loss of power: durable writes are there",
    arguments: [1, 2, 3])
  func simulated(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed)
    let store = try Store.create(on: host, configuration: Self.configuration)
    for key in ["k", "last"] as [Key] { try store.put(key, "1", durability: .full) }
    try host.storage.rename("/store", to: "/moved")
    try host.storage.syncDirectory("/")
    try host.storage.copyTree(from: "/moved", to: "/store")
    for number in 0..<200 { try store.put(Key("\(number)"), Self.value(number, 900)) }
    try store.put("large", Self.value(1, 5000))
    try store.sync()
    host.losePower(seed: seed)
    let again = try Store.open("/moved", on: host, configuration: Self.configuration)
    for number in 0..<200 { #expect(try again.get(Key("\(number)"))?.bytes == Self.value(number, 900)) }
    #expect(try again.get("large")?.bytes == Self.value(1, 5000) && again.verify().isClean)
    let copy = try Store.open(on: host, configuration: Self.configuration)
    #expect(try copy.text("k") == "1" && copy.get("0") == nil && copy.get("large") == nil)
  }
}

import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A symbolic link as the last component of a path is followed to its directory.
@Suite("A store whose path is a symbolic link") struct LinkedPathTests {
  let directory = TemporaryDirectory()
  var real: String { directory.path + "/real" }
  var link: String { directory.path + "/link" }

  func makeLink(to target: String? = nil) throws {
    try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target ?? real)
  }

  @Test("is the one instance of the directory, by whatever path it is opened (F96)")
  func same() throws {
    let store = try Store.create(at: real)
    try makeLink()
    #expect(try Store.exists(at: link))
    #expect(try Store.open(at: link) === store)
    #expect(try Store.openOrCreate(at: link) === store)
    #expect(try StoreHandle.at(link).withStore { $0 === store })
    #expect(StoreHandle.at(link) === StoreHandle.at(real))
    try store.close()
    let linked = try Store.open(at: link)
    #expect(linked.path == SystemCall.absolutePath(real))
    #expect(try Store.open(at: real) === linked)
    // A later change of the link does not affect an open store.
    try FileManager.default.removeItem(atPath: link)
    try linked.put("k", 1)
    try linked.close()
    #expect(try Store.open(at: real).get("k", as: Int.self) == 1)
  }

  @Test("is created in an empty directory that the link points to, under the directory's name")
  func made() throws {
    try FileManager.default.createDirectory(
      atPath: real, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
    try makeLink()
    let store = try Store.openOrCreate(at: link)
    #expect(store.name == "real")
    try store.close()
    #expect(try Store.exists(at: real))
  }

  @Test("is moved, replaced by a restore and removed as the directory: the link stays a link")
  func moved() throws {
    let store = try Store.create(at: real)
    try store.put("k", 1)
    try store.backUp(to: directory.path + "/backup")
    try store.put("k", 2)
    try store.close()
    try makeLink()
    try Store.restore(from: directory.path + "/backup", to: link, replacing: true)
    #expect(try Store.open(at: real).get("k", as: Int.self) == 1)
    try Store.open(at: real).close()
    try Store.move(from: link, to: directory.path + "/moved")
    #expect(try Store.exists(at: directory.path + "/moved"))
    #expect(try !Store.exists(at: link))
    try Store.move(from: directory.path + "/moved", to: real)
    #expect(try Store.remove(at: link))
    #expect(try !Store.exists(at: real))
    #expect(try DiskStorage().status(link)?.kind == .link)
  }

  @Test("is no store if the link is dangling, circular or points to a file, and the error says what to do")
  func nowhere() throws {
    try makeLink()
    #expect(try !Store.exists(at: link))
    for open in [{ try Store.open(at: link) }, { try Store.openOrCreate(at: link) }] {
      let error = #expect(throws: StoreError.self) { try open() }
      #expect(error?.code == .notAStore)
      #expect(error?.message.contains("leads nowhere: make the directory") == true)
    }
    try FileManager.default.removeItem(atPath: link)
    try makeLink(to: link)
    #expect(#expect(throws: StoreError.self) { try Store.open(at: link) }?.code == .notAStore)
    try FileManager.default.removeItem(atPath: link)
    try Data().write(to: URL(filePath: real))
    try makeLink()
    #expect(#expect(throws: StoreError.self) { try Store.open(at: link) }?.code == .notAStore)
    #expect(try !Store.remove(at: link))
  }
}

/// A file to read, or to back up into, may be a symbolic link.
@Suite("A file whose path is a symbolic link") struct LinkedFileTests {
  let directory = TemporaryDirectory()

  /// A link to `target`, in the same directory.
  func link(to target: String) throws -> String {
    let path = "\(directory.path)/link to \(target)"
    try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
    return path
  }

  @Test("is read: small and large values, also in a transaction, property lists and files of MMKV")
  func read() throws {
    let store = try Store.create(at: directory.path + "/store")
    for size in [10, 100_000, 3 << 20] {
      let bytes = [UInt8](repeating: 7, count: size)
      try Data(bytes).write(to: URL(filePath: directory.path + "/\(size)"))
      let file = try link(to: "\(size)")
      try store.put("k", fileAt: file)
      #expect(try store.get("k")?.bytes == bytes)
      try store.transaction { try $0.put("in a transaction", fileAt: file) }
      #expect(try store.get("in a transaction")?.bytes == bytes)
    }
    let list = try PropertyListSerialization.data(fromPropertyList: ["a": 1], format: .xml, options: 0)
    try list.write(to: URL(filePath: directory.path + "/list"))
    try store.importAll(fromPropertyListAt: try link(to: "list"))
    #expect(try store.get("a", as: Int.self) == 1)
    // Encrypted: the vector is in a file next to the link's target.
    let (key, vector) = (Array("a key".utf8), [UInt8](repeating: 7, count: 16))
    try MigrationTests.MMKVWriter.sample.write(
      to: directory.path + "/settings", DiskStorage(), key: key, vector: vector)
    let file = try MMKVFile(path: try link(to: "settings"), cryptKey: key)
    #expect(file.path.hasSuffix("link to settings") && file.string("text") == "latest: ä")
  }

  @Test("takes a backup and its increments, stays a link, and is restored from")
  func backup() throws {
    let store = try Store.create(at: directory.path + "/store")
    try store.put("k", 1)
    try store.backUp(to: directory.path + "/backup")
    let file = try link(to: "backup")
    try store.put("k", 2)
    try store.backUp(to: file)
    #expect(try DiskStorage().status(file)?.kind == .link)
    #expect(try Store.backupSummary(of: file).states.count == 2)
    try Store.verifyBackup(file)
    try Store.restore(from: file, to: directory.path + "/restored")
    #expect(try Store.open(at: directory.path + "/restored").get("k", as: Int.self) == 2)
    let nowhere = try link(to: "nothing")
    #expect(#expect(throws: StoreError.self) { try store.backUp(to: nowhere) }?.code == .foreignFile)
  }
}

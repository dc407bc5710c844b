import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A symbolic link as the last part of a path is the directory that it leads to.
@Suite("A store whose path is a link") struct LinkedPathTests {
  let directory = TemporaryDirectory()
  var real: String { directory.path + "/real" }
  var link: String { directory.path + "/link" }

  func makeLink(to target: String? = nil) throws {
    try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target ?? real)
  }

  @Test("is the one live instance of the directory, by whatever path it is opened (F96)")
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
    // Where the link leads later is of no concern to a store that is open.
    try FileManager.default.removeItem(atPath: link)
    try linked.put("k", 1)
    try linked.close()
    #expect(try Store.open(at: real).get("k", as: Int.self) == 1)
  }

  @Test("is made in an empty directory that the link leads to, under the directory's name")
  func made() throws {
    try FileManager.default.createDirectory(
      atPath: real, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
    try makeLink()
    let store = try Store.openOrCreate(at: link)
    #expect(store.name == "real")
    try store.close()
    #expect(try Store.exists(at: real))
  }

  @Test("is moved, restored over and removed as the directory: the link stays a link")
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

  @Test("is no store if the link leads nowhere, in a circle or to a file, and the error says what to do")
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

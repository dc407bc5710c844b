import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// What errors tell people: what it is, in the words of who calls, and what to do.
@Suite("An error says") struct ErrorTextTests {
  let directory = TemporaryDirectory()

  func message(_ body: () throws -> Void) -> String {
    #expect(throws: StoreError.self) { try body() }?.message ?? ""
  }

  @Test("which call makes a store where there is none")
  func missing() {
    #expect(message { _ = try Store.open(at: directory.path + "/none") }.contains("`Store.create`"))
    #expect(message { _ = try Store.open(at: directory.path) }.contains("`Store.create`"))
  }

  @Test("that a directory, or a link, was named where a file was wanted")
  func directories() throws {
    let store = try Store.create(at: directory.path + "/store")
    let link = directory.path + "/link"
    try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: directory.path + "/store/x")
    #expect(
      message { try store.put("k", fileAt: directory.path) } == "is a directory: name a file that can be read"
    )
    #expect(
      message { try store.put("k", fileAt: link) }
        .hasPrefix("is a symbolic link that leads nowhere: name a file"))
    #expect(message { try store.put("k", fileAt: "/dev/null") }.hasPrefix("is no regular file: name a file"))
    #expect(
      message { _ = try store.importAll(fromPropertyListAt: directory.path) }
        == "is a directory: name a property list")
    #expect(message { _ = try MMKVFile(path: directory.path) } == "is a directory: name a file of MMKV")
    #expect(try store.get("k") == nil)
  }

  @Test("that it is this process that keeps a store closed, if it is")
  func own() throws {
    let handle = StoreHandle.at(directory.path + "/store")
    try handle.withStore { try $0.put("k", 1) }
    try handle.close {
      #expect(message { _ = try Store.open(at: handle.path) }.hasPrefix("this process keeps everybody out"))
      #expect(message { try Store.remove(at: handle.path) }.hasPrefix("this process keeps everybody out"))
    }
    try handle.withStore { store in
      #expect(message { try Store.remove(at: handle.path) }.contains("close it in all processes first"))
      try store.put("k", 2)
    }
    try handle.close()
  }

  @Test("what a value is and what was wanted, and no type that only the library knows")
  func types() throws {
    struct Reading: Codable { var celsius: Double }
    let store = try Store.create(at: directory.path + "/store")
    try store.put("k", [1, 2])
    let properties = message { _ = try store.get("k", as: Reading.self) }
    #expect(properties.contains("not an object with properties (in a value of type Reading)"))
    try store.put("k", Reading(celsius: 1))
    struct List: Decodable {
      init(from decoder: any Decoder) throws { _ = try decoder.unkeyedContainer() }
    }
    let list = message { _ = try store.get("k", as: List.self) }
    #expect(list.contains("not a list (in a value of type List)"))
    #expect(!(properties + list).contains("Any"))
  }
}

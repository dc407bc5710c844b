import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// "é" as one scalar and as a letter with a combining accent are equal as `String`, but not in their bytes.
/// Keys, paths and names are bytes: no type may confuse the two.
@Suite("Two names that are equal as text, but not in their bytes,")
struct StringIdentityTests {
  static let composed = "caf\u{E9}"
  static let decomposed = "cafe\u{301}"
  private let directory = TemporaryDirectory()

  private static func bytes(_ strings: [String]) -> [[UInt8]] { strings.map { Array($0.utf8) } }

  @Test("are equal in Swift")
  func premise() {
    #expect(Set([Self.composed, Self.decomposed]).count == 1)
    #expect(!Self.composed.hasSameBytes(as: Self.decomposed))
  }

  @Test("are two keys of a dictionary and two members of a set")
  func tables() {
    var table: StringDictionary<Int> = [Self.composed: 1, Self.decomposed: 2]
    #expect(table.count == 2 && table[Self.composed] == 1 && table[Self.decomposed] == 2)
    table[Self.composed, default: 0] += 5
    #expect(table.removeValue(forKey: Self.decomposed) == 2)
    #expect(table[Self.composed] == 6 && table[Self.decomposed] == nil && table.count == 1)
    #expect(table == [Self.composed: 6] && table != [Self.decomposed: 6])
    #expect(table.filter { $0.value > 6 }.isEmpty && "\(table)" == "[\"caf\u{E9}\": 6]")
    var set: StringSet = [Self.composed]
    #expect(!set.contains(Self.decomposed) && set.insert(Self.decomposed) && !set.insert(Self.composed))
    #expect(set.count == 2 && set.remove(Self.composed) && !set.contains(Self.composed))
    #expect(set == [Self.decomposed] && set != [Self.composed])
  }

  @Test("are two stores: by their handles, below a root, and when they are removed")
  func stores() throws {
    let paths = [Self.composed, Self.decomposed].map { directory.path + "/" + $0 }
    let handles = paths.map { StoreHandle.at($0) }
    #expect(handles[0] !== handles[1])
    for (number, handle) in handles.enumerated() { try handle.withStore { try $0.put("k", "\(number)") } }
    for (number, handle) in handles.enumerated() {
      #expect(try handle.withStore { try $0.text("k") } == "\(number)")
    }
    #expect(try StoreHandle.at(paths[1]).withStore { try $0.text("k") } == "1")
    #expect(try handles[0].remove())
    #expect(try handles[1].withStore { try $0.text("k") } == "1")
    let root = StoreRoot(directory.path + "/root")
    let (first, second) = (try root.store(Self.composed), try root.store(Self.decomposed))
    #expect(first !== second)
    try first.withStore { try $0.put("k", "first") }
    #expect(try second.withStore { try $0.text("k") } == nil)
    try second.withStore { try $0.put("k", "second") }
    #expect(try Self.bytes(root.names()) == Self.bytes([Self.decomposed, Self.composed]))
    let reports = try root.backUpAll(to: directory.path + "/backups")
    #expect(reports.count == 2 && reports[Self.composed] != nil && reports[Self.decomposed] != nil)
    try first.withStore { try $0.put("k", "changed") }
    #expect(try root.restoreAll(from: directory.path + "/backups").count == 2)
    #expect(try first.withStore { try $0.text("k") } == "first")
    #expect(try second.withStore { try $0.text("k") } == "second")
  }

  @Test("are two caches and two keys of one, on disk, in memory and on both levels")
  func caches() throws {
    let paths = [Self.composed, Self.decomposed].map { directory.path + "/" + $0 }
    let disks = try paths.map { try DiskCache.open(at: $0) }
    #expect(disks[0] !== disks[1])
    let cache = Cache<String>(memory: MemoryCache(), disk: disks[0])
    try cache.set(Self.composed, "one")
    #expect(try cache.get(Self.decomposed) == nil && !cache.contains(Self.decomposed))
    try cache.set(Self.decomposed, "two")
    #expect(try cache.get(Self.composed) == "one" && cache.get(Self.decomposed) == "two")
    #expect(try cache.remove(Self.composed))
    #expect(try cache.get(Self.composed) == nil && cache.get(Self.decomposed) == "two")
    #expect(cache.memory.get(Self.composed) == nil)

    try disks[1].set(Self.composed, [1])
    try disks[1].set(Self.decomposed, [2])
    let found = try disks[1].get([Self.composed, Self.decomposed])
    #expect(found.count == 2 && found[Self.composed] == [1] && found[Self.decomposed] == [2])
    var seen: [DiskCache.Information] = []
    try disks[1].forEach { known in
      seen.append(known)
      return true
    }
    let known = try #require(try disks[1].information(Self.composed))
    #expect(Set(seen.map { Array($0.key.utf8) }).count == 2 && seen.count { $0 == known } == 1)

    let memory = MemoryCache<String, Int>(countLimit: 2)
    memory.set(Self.composed, 1)
    memory.set(Self.decomposed, 2)
    #expect(memory.count == 2 && memory[Self.composed] == 1 && memory[Self.decomposed] == 2)
    memory[Self.composed] = nil
    #expect(!memory.contains(Self.composed) && memory.get(Self.decomposed) == 2)
    disks.forEach { $0.close() }
  }

  struct Item: Codable, Identifiable, Equatable, Sendable {
    let id: String
    var place: String
  }

  @Test("are two collections, two indexes and two identifiers")
  func collections() throws {
    let store = try Store.create(at: directory.path + "/store")
    let indexes = [Self.composed, Self.decomposed].map { CollectionIndex<Item, String>($0, \.place) }
    for name in [Self.composed, Self.decomposed] {
      let items = try store.collection(name, of: Item.self, indexes: indexes)
      try items.insert(Item(id: Self.composed, place: name))
      #expect(try items.get(Self.decomposed) == nil)
      try items.insert(Item(id: Self.decomposed, place: "x"))
      #expect(try items.count == 2)
      for index in indexes { #expect(try items.all(by: index, equalTo: "x").map(\.id.utf8.count) == [6]) }
    }
    // A name that begins with a combining mark, as in the record of built indexes after a slash.
    var note = IndexMetadata()
    let wanted = Set(
      [Self.composed, Self.decomposed, "\u{301}x"].map { IndexMetadata.Name(name: $0, version: 2) })
    #expect(wanted.count == 3)
    note.beginBuilding(wanted, at: 7)
    let read = IndexMetadata(try note.bytes())
    #expect(read == note && read.building.count == 3)
  }

  @Test("are two entries of a property list, in either form, and a repeated one is counted")
  func propertyLists() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host)
    let text =
      "<plist><dict><key>\(Self.composed)</key><string>1</string><key>\(Self.decomposed)</key><string>2</string>"
      + "<key>a</key><string>3</string><key>a</key><string>4</string></dict></plist>"
    try host.storage.replace("/list", with: Array(text.utf8))
    let report = try store.importAll(fromPropertyListAt: "/list")
    #expect(report == ImportReport(imported: 3, merged: 1))
    #expect(try store.text(Key(Self.composed)) == "1" && store.text(Key(Self.decomposed)) == "2")
    #expect(try store.text("a") == "4")
    // Keys in UTF-16: 0x63 0x61 0x66 and E9, or 65 and 301.
    let binary: [UInt8] =
      Array("bplist00".utf8) + [0xD2, 1, 2, 3, 4]
      + [0x64, 0, 0x63, 0, 0x61, 0, 0x66, 0, 0xE9, 0x65, 0, 0x63, 0, 0x61, 0, 0x66, 0, 0x65, 3, 1]
      + [0x51, 0x31, 0x51, 0x32] + [8, 13, 22, 33, 35] + [UInt8](repeating: 0, count: 6) + [1, 1]
      + [0, 0, 0, 0, 0, 0, 0, 5] + [UInt8](repeating: 0, count: 8) + [0, 0, 0, 0, 0, 0, 0, 37]
    guard case .dictionary(let entries) = try PropertyList.read(binary, path: "/list") else {
      Issue.record("its root is a dictionary")
      return
    }
    #expect(entries == [Self.composed: .string("1"), Self.decomposed: .string("2")])
  }

  @Test("are listed in the order of their bytes")
  func order() throws {
    let names = ["z", Self.composed, Self.decomposed, "caff"]
    for name in names {
      try FileManager.default.createDirectory(
        atPath: directory.path + "/d/" + name, withIntermediateDirectories: true)
    }
    let sorted = Self.bytes(names).sorted { $0.lexicographicallyPrecedes($1) }
    #expect(try Self.bytes(DiskStorage().list(directory.path + "/d")) == sorted)
    let storage = SimulatedStorage()
    _ = try storage.createDirectory("/d")
    for name in names { _ = try storage.createDirectory("/d/" + name) }
    #expect(try Self.bytes(storage.list("/d")) == sorted)
  }
}

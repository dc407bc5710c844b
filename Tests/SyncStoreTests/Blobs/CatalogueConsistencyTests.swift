import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// The blob catalogue is derived: it may be older or newer than the journal.
@Suite("A blob catalogue inconsistent with the journal")
struct CatalogueConsistencyTests {
  let directory = TemporaryDirectory()
  var path: String { directory.path + "/store" }

  func value(_ number: UInt8) -> [UInt8] { [UInt8](repeating: number, count: 30_000) }

  /// Replaces all files in `blobs` except the objects by those of another moment.
  func exchangeCatalogue(by other: String) throws {
    let storage = DiskStorage()
    for name in try storage.list(path + "/blobs")
    where try storage.status(path + "/blobs/" + name)?.kind == .file {
      _ = try storage.remove(path + "/blobs/" + name)
    }
    for name in try storage.list(other) where try storage.status(other + "/" + name)?.kind == .file {
      try storage.replace(
        path + "/blobs/" + name, with: try storage.contents(of: other + "/" + name, limit: 1 << 24) ?? [])
    }
  }

  @Test("F23 older or newer than the journal, it causes no loss", arguments: [true, false])
  func outOfStep(isBehind: Bool) throws {
    let store = try Store.create(at: path)
    for number in 0..<5 as Range<UInt8> { try store.put(Key("\(number)"), value(number)) }
    try store.close()
    let early = directory.path + "/early"
    try #require(LoopImage.run(["cp", "-r", path + "/blobs", early]))
    if !isBehind {
      // The journal goes back; objects and rows that it no longer knows stay.
      try #require(LoopImage.run(["cp", "-r", path + "/journal", directory.path + "/journal"]))
    }
    let second = try Store.open(at: path)
    for number in 5..<10 as Range<UInt8> { try second.put(Key("\(number)"), value(number)) }
    try second.delete("0")
    try second.close()
    if isBehind {
      try exchangeCatalogue(by: early)
    } else {
      try #require(
        LoopImage.run(["rm", "-r", path + "/journal"])
          && LoopImage.run(["mv", directory.path + "/journal", path + "/journal"]))
    }
    let again = try Store.open(at: path)
    let keys = try again.list().map(\.key.bytes)
    #expect(keys.count == (isBehind ? 9 : 5))
    for key in keys { #expect(try again.get(Key(unchecked: key))?.bytes.first == key[0] - 0x30) }
    #expect(try again.verify().damage == [])
    // Known content is found again, whatever the catalogue says.
    try again.put("again", value(7))
    #expect(try again.get("again")?.bytes == value(7))
    #expect(try again.verify().isClean)
    try again.close()
  }
}

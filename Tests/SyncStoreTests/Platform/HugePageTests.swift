import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Advice given to the kernel about mappings, as reported in `smaps` (proc(5)).
@Suite(
  "Huge pages",
  .enabled(if: FileManager.default.fileExists(atPath: "/sys/kernel/mm/transparent_hugepage/enabled")))
struct HugePageTests {
  /// The flags of each mapping of a file.
  private static func flags(of path: String) throws -> [Set<Substring>] {
    var flags: [Set<Substring>] = []
    var isWanted = false
    // A kernel file without a size: it is read to its end.
    let bytes = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/proc/self/smaps")).readToEnd() ?? Data()
    for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
      let words = line.split(separator: " ")
      if words[0] == "VmFlags:" {
        if isWanted { flags.append(Set(words.dropFirst())) }
      } else if words[0].contains("-"), !words[0].hasSuffix(":") {
        isWanted = line.hasSuffix(path)
      }
    }
    return flags
  }

  @Test(
    "are requested for the index, where it has room for one, and never for a segment to be synced")
  func preferred() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/pages"
    let pages = MappedPages(try DiskStorage().open(path, .create), writable: true)
    for number: UInt32 in [0, 16, 512] {
      try pages.allocate(number)
      pages.populate(number..<(number + 1))
      try pages.page(number).store(7, at: 0)
    }
    let flags = try Self.flags(of: path)
    #expect(flags.count == 3 && flags.count { $0.contains("hg") } == 1)
    let ready = try Journal.prepare(
      directory: directory.path, size: 4 << 20, storage: DiskStorage(), isDurable: false)
    let segment = try Self.flags(of: directory.path + "/next")
    #expect(ready != nil && segment.count >= 1 && !segment.contains { $0.contains("hg") })
    withExtendedLifetime((directory, pages, ready)) {}
  }
}

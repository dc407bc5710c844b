import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// Each file of a store replaced by something else: a FIFO without a writer, a socket, a device, a directory,
/// a symbolic link to itself.
@Suite("A store with a foreign object in place of a file", .timeLimit(.minutes(Patience.minutes(2))))
struct ForeignFileTests {
  enum Strange: CaseIterable, Sendable { case fifo, socket, device, directory, loop }

  private static let values = [
    "a": pattern(100), "b": pattern(6000), "c": [UInt8](repeating: 3, count: 5 << 20),
  ]
  private static let configuration = Configuration(durability: .relaxed, blobThreshold: 4096)

  private func made() throws -> TemporaryDirectory {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", configuration: Self.configuration)
    for (key, value) in Self.values.sorted(by: { $0.key < $1.key }) { try store.put(Key(key), value) }
    try store.close()
    return directory
  }

  private func files(_ directory: String) throws -> [String] {
    try DiskStorage().list(directory).flatMap { name -> [String] in
      let path = directory + "/" + name
      guard try DiskStorage().status(path)?.kind == .directory else { return [path] }
      return try files(path)
    }
  }

  /// False where this process may not make one.
  private func plant(_ strange: Strange, at path: String) -> Bool {
    switch strange {
    case .fifo: unsafe mknod(path, S_IFIFO | 0o600, 0) == 0
    case .socket: unsafe mknod(path, S_IFSOCK | 0o600, 0) == 0
    // /dev/null: swallows everything and returns nothing.
    case .device: unsafe mknod(path, S_IFCHR | 0o600, dev_t(1 << 8 | 3)) == 0
    case .directory: unsafe mkdir(path, 0o700) == 0
    case .loop: unsafe symlink(path, path) == 0
    }
  }

  @Test(
    "is opened as if the file were missing, or refused with a reason; nothing else is read or lost (F45)",
    arguments: Strange.allCases)
  func opening(_ strange: Strange) throws {
    let names = try {
      let directory = try made()
      return try files(directory.path + "/store").map { $0.dropFirst(directory.path.count) }
    }()
    #expect(names.count > 5)
    var refused = 0
    let kind = Strange.allCases.firstIndex(of: strange) ?? 0
    let isWhole = unsafe getenv("STRANGE_FILES") != nil
    for number in names.indices where isWhole || (number + kind) % 5 == 0 {
      // Some names are random.
      let directory = try made()
      let path = try files(directory.path + "/store")[number]
      try DiskStorage().rename(path, to: directory.path + "/aside")
      guard plant(strange, at: path) else { return }
      let begun = SystemCall.monotonicMilliseconds()
      do throws(StoreError) {
        let store = try Store.open(at: directory.path + "/store", configuration: Self.configuration)
        for (key, value) in Self.values {
          do throws(StoreError) {
            let found = try store.get(Key(key))?.bytes
            #expect(found == value, "\(key), \(path)")
          } catch { #expect(!error.message.isEmpty && key != "a", "\(error), \(path)") }
        }
        try? store.close()
      } catch {
        refused += 1
        #expect(
          [.foreignFile, .damaged, .notAStore, .inputOutput].contains(error.code)
            && error.description.contains(directory.path), "\(error), \(path)")
      }
      #expect(SystemCall.monotonicMilliseconds() - begun < UInt64(Patience.minutes(1)) * 10_000, "\(path)")
      // The file moved aside was all that was wrong.
      _ = try DiskStorage().removeTree(path)
      try DiskStorage().rename(directory.path + "/aside", to: path)
      let again = try Store.open(at: directory.path + "/store", configuration: Self.configuration)
      #expect(try again.get("a")?.bytes == Self.values["a"], "\(path)")
      try again.close()
    }
    if isWhole { #expect(refused > 0) }
  }
}

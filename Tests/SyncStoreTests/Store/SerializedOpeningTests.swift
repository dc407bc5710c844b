import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// Opens within one process wait for each other if they are of one directory, and for nothing else.
@Suite("Serialization of openings in one process", .timeLimit(.minutes(Patience.minutes(1))))
struct SerializedOpeningTests {
  let directory = TemporaryDirectory()

  /// A store with a damaged record below the durable watermark.
  private func damaged() throws -> String {
    let path = directory.path + "/damaged"
    let store = try Store.create(at: path)
    for number in 0..<50 { try store.put(Key("\(number)"), "value \(number)") }
    try store.close()
    let storage = DiskStorage()
    let segment = "\(path)/journal/0000000000000001.segment"
    let file = try storage.open(segment, .readWrite)
    let bytes = try file.read(file.sizeAtOpening, at: 0)
    let wanted = Array("value 25".utf8)
    let place = try #require((0..<(bytes.count - 8)).first { Array(bytes[$0..<($0 + 8)]) == wanted })
    try file.write([wanted[0] ^ 1], at: place)
    // Without the index the whole journal is read.
    for name in ["index", "ledger", "control"] { _ = try storage.remove("\(path)/\(name)") }
    return path
  }

  @Test(
    "`onCorruption` can open other stores, on any thread, and gets an error if it opens this one"
  )
  func callback() throws {
    let path = try damaged()
    let other = directory.path + "/other"
    try Store.create(at: other).close()
    let asked = Locked(0)
    var configuration = Configuration()
    configuration.onCorruption = { _ in
      asked.withLock { $0 += 1 }
      #expect(throws: Never.self) {
        let store = try Store.open(at: other)
        try store.put("asked", "yes")
        try store.close()
        try Threaded.run(1) { _ in try Store.create(at: other + "-beside").close() }
      }
      let own = #expect(throws: StoreError.self) { try Store.open(at: path) }
      #expect(own?.code == .busy)
      let handled = #expect(throws: StoreError.self) { try StoreHandle.at(path).withStore { _ in } }
      #expect(handled?.code == .busy)
      return .serveRest
    }
    let store = try Store.open(at: path, configuration: configuration)
    #expect(asked.withLock { $0 } == 1)
    #expect(try store.text("24") == "value 24")
    try store.close()
    let again = try Store.open(at: other)
    #expect(try again.text("asked") == "yes")
    try again.close()
  }

  @Test("a handle's own `onCorruption` does not deadlock on the handle")
  func handle() throws {
    let path = try damaged()
    let code = Locked<StoreError.Code?>(nil)
    var configuration = Configuration()
    configuration.onCorruption = { _ in
      do { try StoreHandle.at(path).withStore { _ in } } catch {
        code.withLock { $0 = (error as? StoreError)?.code }
      }
      return .serveRest
    }
    let handle = StoreHandle.at(path, configuration: configuration)
    #expect(try handle.withStore { try $0.text("24") } == "value 24")
    #expect(code.withLock { $0 } == .busy)
    try handle.close()
  }

  @Test(
    "concurrent openings wait for the first one's decision, and get its instance or open the store themselves"
  )
  func together() throws {
    let path = try damaged()
    let asked = Locked(0)
    var configuration = Configuration()
    configuration.onCorruption = { _ in
      usleep(50_000)
      return asked.withLock {
        $0 += 1; return $0
      } == 1 ? .refuse : .serveRest
    }
    let stores = Locked<[Store]>([])
    let refused = Locked(0)
    try Threaded.run(4) { [configuration] _ in
      do {
        let store = try Store.open(at: path, configuration: configuration)
        #expect(try store.text("24") == "value 24")
        stores.withLock { $0.append(store) }
      } catch let error as StoreError where error.code == .damaged {
        refused.withLock { $0 += 1 }
      }
    }
    let opened = stores.withLock { $0 }
    #expect(refused.withLock { $0 } == 1 && asked.withLock { $0 } == 2)
    #expect(opened.count == 3 && opened.allSatisfy { $0 === opened[0] })
    try opened[0].close()
  }

  @Test("openings of other directories are not delayed, whatever this one waits for")
  func apart() throws {
    let slow = try damaged()
    let quick = directory.path + "/quick"
    try Store.create(at: quick).close()
    let opened = Locked(false)
    var configuration = Configuration()
    // It ends only after the other one was opened.
    configuration.onCorruption = { _ in
      while !opened.withLock({ $0 }) { usleep(1000) }
      return .serveRest
    }
    try Threaded.run(2) { [configuration] thread in
      if thread == 0 { return try Store.open(at: slow, configuration: configuration).close() }
      usleep(20_000)
      try Store.open(at: quick).close()
      opened.withLock { $0 = true }
    }
    #expect(opened.withLock { $0 })
  }
}

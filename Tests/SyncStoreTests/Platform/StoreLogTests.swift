import SyncTestSupport
import Testing

@testable import SyncStore

/// Log entries of a store, and its behaviour when it was found damaged. Serialised: there is one log.
@Suite("The handlers of a program", .serialized)
struct StoreLogTests {
  let host = SimulatedHost(encrypted: false)

  /// Entries about stores of this test: others run concurrently.
  func entries(about path: String, from least: StoreLog.Level = .info, _ body: () throws -> Void) rethrows
    -> [StoreLog.Entry]
  {
    let heard = Locked<[StoreLog.Entry]>([])
    StoreLog.redirect(from: least) { entry in
      if entry.path == path { heard.withLock { $0.append(entry) } }
    }
    defer { StoreLog.redirect(to: nil) }
    try body()
    return heard.withLock { $0 }
  }

  static func flip(_ value: String, of path: String, _ storage: SimulatedStorage) throws {
    let segment = path + "/journal/0000000000000001.segment"
    let bytes = try storage.open(segment, .readOnly).read(1 << 20, at: 0)
    let place = try #require(bytes.indices.first { bytes[$0...].starts(with: value.utf8) })
    try storage.flipBit(of: segment, at: place, bit: 2)
  }

  @Test("are told of a copied directory, a failed sync and damage, with a severity")
  func log() throws {
    let store = try Store.create("/log", on: host)
    try store.put("k", "v")
    try store.close()
    try host.storage.copyTree(from: "/log", to: "/log copy")
    let copied = try entries(about: "/log copy") { try Store.open("/log copy", on: host).close() }
    #expect(
      copied.count == 1 && copied.first?.level == .warning && copied.first?.message.contains("copied") == true
    )
    #expect(try entries(about: "/log copy") { try Store.open("/log copy", on: host).close() } == [])
    let again = try Store.open("/log", on: host)
    host.storage.failSync(of: "/log/journal/0000000000000001.segment")
    let failed = entries(about: "/log", from: .error) { try? again.put("k", "w") }
    #expect(failed.count == 1 && failed.first?.message.contains("a sync failed") == true)
    try again.close()
    // Entries below the requested level are dropped.
    try host.storage.copyTree(from: "/log copy", to: "/quiet")
    #expect(try entries(about: "/quiet", from: .error) { try Store.open("/quiet", on: host).close() } == [])
  }

  @Test("are asked about damage, once at each opening, and their choice is executed (F37)")
  func corruption() throws {
    let store = try Store.create("/damaged", on: host)
    for number in 0..<50 { try store.put(Key("\(number)"), "value \(number)") }
    try store.close()
    try Self.flip("value 25", of: "/damaged", host.storage)
    // A sync has not reported it yet; reading all of it does.
    host.losePower(seed: 1)
    let asked = Locked<[CorruptionReport]>([])
    let choice = Locked(CorruptionChoice.refuse)
    var configuration = Configuration()
    configuration.onCorruption = { report in
      asked.withLock { $0.append(report) }
      return choice.withLock { $0 }
    }
    for round in 1...2 {
      let error = #expect(throws: StoreError.self) {
        try Store.open("/damaged", on: host, configuration: configuration)
      }
      #expect(error?.code == .damaged && asked.withLock { $0.count } == round)
    }
    choice.withLock { $0 = .serveRest }
    let again = try Store.open("/damaged", on: host, configuration: configuration)
    #expect(try again.text("24") == "value 24")
    #expect(#expect(throws: StoreError.self) { try again.get("25") }?.code == .damaged)
    let report = try #require(asked.withLock { $0.last })
    #expect(report.keys == ["25"] && report.places.count == 1 && report.path == "/damaged")
    try again.close()
    let whole = try Store.create("/whole", on: host, configuration: configuration)
    try whole.close()
    _ = try Store.open("/whole", on: host, configuration: configuration)
    #expect(asked.withLock { $0.count } == 3)
    // Unless the program asks otherwise the rest is served.
    #expect(try Store.open("/damaged", on: host).text("26") == "value 26")
  }
}

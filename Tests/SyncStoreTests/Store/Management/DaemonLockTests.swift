import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("The daemon lock of a store")
struct DaemonLockTests {
  @Test("has one holder, names it, and is released with its file")
  func lock() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", configuration: Configuration(mode: .shared))
    #expect(try DaemonLock.holder(of: store) == nil)
    var lock: DaemonLock? = try DaemonLock(store)
    #expect(try DaemonLock.holder(of: store)?.process == SystemCall.processID)
    try lock?.publish(address: "192.0.2.1:7420")
    #expect(try DaemonLock.holder(of: store)?.address == "192.0.2.1:7420")
    let error = #expect(throws: StoreError.self) { _ = try DaemonLock(store) }
    #expect(error?.code == .busy)
    let message = error?.message ?? ""
    #expect(message.contains("process \(SystemCall.processID)") && message.contains("192.0.2.1:7420"))
    // As if it were killed: nothing is released in an orderly way.
    lock = nil
    #expect(try DaemonLock.holder(of: store) == nil)
    let next = try DaemonLock(store)
    #expect(try DaemonLock.holder(of: store)?.address == nil)
    next.end()
    #expect(try DaemonLock.holder(of: store) == nil)
    try store.close()
  }
}

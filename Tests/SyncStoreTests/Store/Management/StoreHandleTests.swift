import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Store handles: opened on use, closed during exclusive access, moved, removed.
@Suite("A store's handle")
struct StoreHandleTests {
  let host = SimulatedHost()

  func handle(_ path: String = "/store", creates: Bool = true, process: Int = 0) -> StoreHandle {
    StoreHandle.at(
      path, configuration: host.configured(), creates: creates,
      environment: host.environmentOf(process: process))
  }

  @Test("is one per directory, opens it at first use, and shows one tag to all")
  func lazy() throws {
    let first = handle()
    #expect(!first.isOpened)
    #expect(try host.storage.status("/store") == nil)
    try first.withStore { try $0.put("k", "v") }
    #expect(first.isOpened && first.canOpen)
    let second = handle()
    #expect(first === second)
    second.tag = 7
    #expect(first.tag == 7)
    let direct = try Store.open(on: host)
    #expect(try first.withStore { $0 === direct })
    try direct.close()
    #expect(!first.isOpened)
    #expect(try second.withStore { try $0.text("k") } == "v")
    #expect(handle("/missing", creates: false).canOpen == false)
    #expect(throws: StoreError.self) { try handle("/missing", creates: false).withStore { _ in } }
  }

  @Test("the same directory by another name is the same handle, and the same store (F96)")
  func names() throws {
    let directory = TemporaryDirectory()
    let plain = StoreHandle.at(directory.path + "/store")
    try plain.withStore { try $0.put("k", "v") }
    try FileManager.default.createSymbolicLink(
      atPath: directory.path + "/link", withDestinationPath: directory.path)
    #expect(StoreHandle.at(directory.path + "/./store/") === plain)
    #expect(StoreHandle.at(directory.path + "/link/store") === plain)
    try plain.remove()
  }

  @Test("waits for its users when closing, and excludes all others until that is done")
  func closing() throws {
    let handle = handle()
    try handle.withStore { try $0.put("k", "0") }
    let order = Locked<[String]>([])
    let inside = DispatchSemaphore(value: 0)
    let goOn = DispatchSemaphore(value: 0)
    let worker = Worker.run {
      try handle.withStore { store in
        inside.signal()
        goOn.wait()
        try store.put("k", "1")
        order.withLock { $0.append("worked") }
      }
    }
    inside.wait()
    let late = Locked<Worker?>(nil)
    let closer = Worker.run {
      try handle.close {
        order.withLock { $0.append("closed") }
        #expect(!handle.isOpened && handle.isBlockaded)
        late.withLock {
          $0 = Worker.run {
            try handle.withStore { store in
              order.withLock { $0.append("late") }
              let text = try store.text("k")
              #expect(text == "1")
            }
          }
        }
        // No thread or process can open it; this thread gets an error instead of a deadlock.
        #expect(throws: StoreError.self) { try handle.withStore { _ in } }
        #expect(#expect(throws: StoreError.self) { try Store.open(on: host) }?.code == .busy)
        let other = self.handle(process: 5)
        #expect(#expect(throws: StoreError.self) { try other.withStore { _ in } }?.code == .busy)
      }
    }
    while !handle.isBlockaded { sched_yield() }
    goOn.signal()
    try worker.wait()
    try closer.wait()
    try late.withLock { $0 }?.wait()
    #expect(order.withLock { $0 } == ["worked", "closed", "late"])
  }

  @Test(
    "can be requested, and answers what is known without the store, while a thread opens it",
    .timeLimit(.minutes(Patience.minutes(1))))
  func askedWhileOpening() throws {
    let (began, goesOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let first = Locked(true)
    var environment = host.environmentOf(process: 0)
    let now = environment.now
    environment.now = {
      if first.withLock({ first in exchange(&first, with: false) }) {
        began.signal()
        goesOn.wait()
      }
      return now()
    }
    let handle = StoreHandle.at(
      "/slow", configuration: host.configured(), creates: true, environment: environment)
    let opener = Worker.run { try handle.withStore { try $0.put("k", "v") } }
    began.wait()
    handle.tag = 3
    #expect(!handle.isOpened && handle.tag == 3)
    #expect(
      StoreHandle.at("/slow", configuration: host.configured(), creates: true, environment: environment)
        === handle)
    handle.purgeMemory()
    goesOn.signal()
    try opener.wait()
    #expect(handle.isOpened)
  }

  @Test("is blocked until it is unblocked, by any thread; a user of the store cannot block it")
  func blockade() throws {
    let handle = handle()
    try handle.withStore { store in
      #expect(#expect(throws: StoreError.self) { try handle.blockade() }?.code == .busy)
      #expect(#expect(throws: StoreError.self) { try handle.close() }?.code == .busy)
      // A thread already inside may enter again, even while another waits for exclusive access.
      try handle.withStore { #expect($0 === store) }
    }
    try handle.blockade()
    #expect(handle.isOpened && handle.isBlockaded)
    #expect(throws: StoreError.self) { try handle.blockade() }
    let waiting = Worker.run { try handle.withStore { try $0.put("k", "v") } }
    try Worker.run { handle.unblockade() }.wait()
    try waiting.wait()
    #expect(try handle.withStore { try $0.text("k") } == "v")
  }

  @Test("moves and stays the same copy; is removed, restored, and created anew")
  func moved() throws {
    let handle = handle()
    let actor = try handle.withStore { store in
      try store.put("k", "v")
      return try store.actor
    }
    _ = try handle.backUp(to: "/backup")
    #expect(try handle.files.contains("/store/STORE"))
    #expect(try handle.sizeOfFiles > 1 << 20)
    _ = try host.storage.createDirectory("/taken")
    #expect(#expect(throws: StoreError.self) { try handle.move(to: "/taken") }?.code == .alreadyExists)
    let moved = try handle.move(to: "/moved")
    #expect(try moved.withStore { try $0.actor } == actor)
    #expect(try handle.files.isEmpty && handle.sizeOfFiles == 0)
    #expect(try moved.remove())
    #expect(try !moved.remove())
    #expect(try host.storage.status("/moved") == nil)
    #expect(try moved.restore(from: "/backup").name == "store")
    #expect(try moved.withStore { try $0.text("k") } == "v")
    try moved.withStore { try $0.put("k", "w") }
    _ = try moved.restore(from: "/backup")
    #expect(try moved.withStore { try $0.text("k") } == "v")
  }

  @Test(
    "removes an encrypted store without its key; not one in use, or with a foreign file")
  func removing() throws {
    let host = SimulatedHost(encrypted: true)
    let store = try Store.create(on: host)
    #expect(#expect(throws: StoreError.self) { try Store.remove(at: "/store", host.storage) }?.code == .busy)
    try store.put("k", "v")
    try store.close()
    _ = try host.storage.open("/store/letter", .create)
    #expect(
      #expect(throws: StoreError.self) { try Store.remove(at: "/store", host.storage) }?.code == .foreignFile)
    #expect(try Store.open(on: host).text("k") == "v")
    try Store.open(on: host).close()
    _ = try host.storage.remove("/store/letter")
    #expect(try Store.remove(at: "/store", host.storage))
    #expect(try host.storage.list("/") == [])
    _ = try Store.create(on: host)
  }

  @Test(
    "leaves the store intact, or removed, if a removal or a move fails at any call and power is lost (F5)"
  )
  func killed() throws {
    for moves in [false, true] {
      var call = 1
      var outcomes: Set<String> = []
      while true {
        let host = SimulatedHost(seed: UInt64(call))
        let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 1000))
        try store.put("k", [UInt8](repeating: 3, count: 5000))
        let actor = try store.actor
        try store.close()
        let plan = FaultPlan()
        plan.fail(number: call, forever: true)
        let storage = FaultingStorage(host.storage, plan: plan)
        if moves {
          try? Store.move(from: "/store", to: "/moved", storage)
        } else {
          _ = try? Store.remove(at: "/store", storage)
        }
        let isDone = plan.calls < call
        host.losePower(seed: UInt64(call))
        var found: [String] = []
        for path in ["/store", "/moved", "/store.removing"] where try Store.exists(at: path, host.storage) {
          found.append(path)
          let again = try Store.open(path, on: host)
          #expect(try again.get("k")?.bytes.count == 5000 && again.actor == actor && again.verify().isClean)
          try again.close()
        }
        #expect(found.count == 1 || (!moves && found.isEmpty), "call \(call): \(found)")
        if isDone { #expect(found == (moves ? ["/moved"] : [])) }
        outcomes.formUnion(found)
        if !moves {
          _ = try Store.remove(at: "/store", host.storage)
          #expect(try host.storage.list("/") == [], "call \(call)")
        }
        if isDone { break }
        call += 1
      }
      #expect(call > 5 && outcomes.contains("/store"))
    }
  }

  @Test("has a name below a root; all stores of a root are backed up and restored at once")
  func root() throws {
    _ = try host.storage.createDirectory("/root")
    let root = StoreRoot("/root", configuration: host.configured(), environment: host.environment)
    for name in ["default", "orders", "stock"] {
      try root.store(name).withStore { try $0.put("name", name) }
    }
    #expect(try root.names() == ["default", "orders", "stock"])
    #expect(try root.store().path == "/root/default")
    #expect(try root.contains("orders") && !root.contains("other"))
    for name in ["", ".", "..", "a/b", "a b", "x.restoring"] {
      #expect(#expect(throws: StoreError.self) { try root.store(name) }?.code == .outOfBounds)
    }
    #expect(try root.backUpAll(to: "/backups").count == 3)
    try root.store("orders").remove()
    try root.store("stock").withStore { try $0.put("name", "changed") }
    #expect(try root.names() == ["default", "stock"])
    #expect(try root.restoreAll(from: "/backups").count == 3)
    for name in try root.names() { #expect(try root.store(name).withStore { try $0.text("name") } == name) }
    #expect(try root.names().count == 3)
  }
}

/// Work on its own thread, whose end can be awaited.
final class Worker: Sendable {
  private let done = DispatchSemaphore(value: 0)
  private let failure = Locked<(any Error)?>(nil)

  static func run(_ body: @escaping @Sendable () throws -> Void) -> Worker {
    let threaded = Worker()
    Thread {
      do { try body() } catch { threaded.failure.withLock { $0 = error } }
      threaded.done.signal()
    }.start()
    return threaded
  }

  func wait() throws {
    done.wait()
    if let error = failure.withLock({ $0 }) { throw error }
  }
}

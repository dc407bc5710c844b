import SyncStore
import SyncTestSupport

/// Plays a script on a store and on a dictionary. After each step all reads, listings and snapshots must
/// match the dictionary; after a power loss the store must match some state of the dictionary not older than
/// the last durable one.
final class StoreScriptRun {
  struct Difference: Error, CustomStringConvertible {
    let description: String
  }

  private struct Planned: Error {}

  private struct Held: Equatable {
    var value: [UInt8]
    var deadline: UInt64?
  }

  private typealias Content = [Int: Held]

  private let host: SimulatedHost
  private let setting: StoreSetting
  private var stores: [Store] = []
  private var content: Content = [:]
  /// The dictionary after each commit since the last durable one, which comes first.
  private var past: [Content] = [[:]]
  /// Since the process started.
  private var hasWritten = false
  private var number = 0
  private var time: UInt64 = 1_700_000_000_000

  init(_ setting: StoreSetting, seed: UInt64) throws {
    self.setting = setting
    host = SimulatedHost(seed: seed, encrypted: setting == .encrypted)
    // Btrfs magic: stores to mapped memory may fail there, so the tail is written with pwrite.
    if setting == .tail { host.storage.type = 0x9123_683E }
    _ = try Store.create(on: host, configuration: configuration)
    try open()
  }

  private var configuration: Configuration {
    var configuration = Configuration(blobThreshold: 20_000, segmentBytes: 64 << 10)
    if setting.isShared { configuration.mode = .shared }
    return configuration
  }

  private func open() throws {
    stores = try (0..<(setting.isShared ? 2 : 1)).map { process in
      try Store.open(
        at: "/store", configuration: host.configured(configuration),
        environment: host.environmentOf(process: process * 100))
    }
  }

  static func key(_ number: Int) throws -> Key { try Key("\(["a", "b", "cc"][number % 3])/\(number)") }

  func play(_ steps: [StoreStep]) throws {
    for step in steps {
      try take(step)
      try compare(step)
    }
    try closeAll()
    try open()
    try compare(.close)
    for store in stores {
      let damage = try store.verify().damage
      guard damage.isEmpty else { throw Difference(description: "the store is damaged: \(damage)") }
    }
  }

  private func take(_ step: StoreStep) throws {
    switch step {
    case .write(let write, let isDurable, let instance):
      let store = stores[instance]
      let durability: Durability = isDurable ? .full : .relaxed
      let key = try Self.key(write.key)
      if let held = apply(write) {
        try store.put(key, held.value, expiration: held.deadline.map { .at($0) }, durability: durability)
      } else {
        try store.delete(key, durability: durability)
      }
      commit(isDurable)
    case .transact(let writes, let isDurable, let instance):
      try stores[instance].transaction(durability: isDurable ? .full : .relaxed) { try put(writes, &$0) }
      commit(isDurable)
    case .fail(let writes, let instance):
      let before = content
      do {
        try stores[instance].transaction { transaction in
          try put(writes, &transaction)
          throw Planned()
        }
      } catch is Planned {}
      content = before
    case .rollBack(let kept, let undone, let instance):
      try stores[instance].transaction(durability: .relaxed) { transaction in
        try put(kept, &transaction)
        let before = content
        let savepoint = transaction.savepoint()
        try put(undone, &transaction)
        try transaction.rollBack(to: savepoint)
        content = before
      }
      commit(false)
    case .deleteUnder(let prefix, let isDurable, let instance):
      let text = Array("\(["a", "b", "cc"][prefix])/".utf8)
      let store = stores[instance]
      let found = try store.list(prefix: text).map(\.key)
      try store.transaction(durability: isDurable ? .full : .relaxed) { transaction in
        for key in found { try transaction.delete(key) }
      }
      for number in 0..<StoreStep.keyCount where number % 3 == prefix { content[number] = nil }
      commit(isDurable)
    case .expire(let key, let life, let instance):
      let deadline = time + UInt64(life)
      let isThere = content[key].map(isLive) ?? false
      guard try stores[instance].expire(Self.key(key), .at(deadline), durability: .relaxed) == isThere else {
        throw Difference(description: "`expire` found what is not there, or did not find what is")
      }
      if isThere { content[key]?.deadline = deadline }
      commit(false)
    case .sync(let instance):
      try stores[instance].sync()
      past = [content]
    case .compact(let instance): try stores[instance].compact()
    case .wait(let milliseconds):
      time += UInt64(milliseconds)
      host.time = time
    case .close:
      try closeAll()
      // A process that wrote nothing does not change which states a previously killed one may have left.
      if hasWritten { past = [content] }
      try open()
    case .kill:
      host.killProcesses()
      hasWritten = false
      try open()
    case .losePower(let seed):
      host.losePower(seed: seed)
      try open()
      try findPast()
    }
  }

  private func closeAll() throws {
    for store in stores { try store.close() }
    stores = []
  }

  // MARK: The dictionary

  private func isLive(_ held: Held) -> Bool { held.deadline.map { $0 > time } ?? true }

  private func apply(_ write: StoreStep.Write) -> Held? {
    number += 1
    guard let size = write.size else {
      content[write.key] = nil
      return nil
    }
    let mark = Array("\(number)".utf8)
    let value =
      Array(mark.prefix(size)) + [UInt8](repeating: UInt8(number & 255), count: max(0, size - mark.count))
    let held = Held(value: value, deadline: write.life == 0 ? nil : time + UInt64(write.life))
    content[write.key] = held
    return held
  }

  private func put(_ writes: [StoreStep.Write], _ transaction: inout Transaction) throws {
    for write in writes {
      let key = try Self.key(write.key)
      if let held = apply(write) {
        try transaction.put(key, held.value, expiration: held.deadline.map { .at($0) })
      } else {
        try transaction.delete(key)
      }
      let expected = content[write.key].flatMap { isLive($0) ? $0.value : nil }
      guard try transaction.get(key)?.bytes == expected else {
        throw Difference(description: "a transaction does not see its own write of \(key)")
      }
    }
  }

  private func commit(_ isDurable: Bool) {
    hasWritten = true
    past = isDurable ? [content] : past + [content]
  }

  private func findPast() throws {
    let shown = try show(stores[0])
    guard let found = past.last(where: { live($0) == shown }) else {
      throw Difference(
        description: "after a loss of power the store is none of the \(past.count) things it was")
    }
    content = found
    past = [found]
  }

  // MARK: Comparing

  private func live(_ content: Content) -> Content { content.filter { isLive($0.value) } }

  private func show(_ store: Store) throws -> Content {
    var shown: Content = [:]
    for number in 0..<StoreStep.keyCount {
      shown[number] = try store.get(Self.key(number)).map { Held(value: $0.bytes, deadline: $0.deadline) }
    }
    return shown
  }

  private func compare(_ step: StoreStep) throws {
    let expected = live(content)
    let keys = try expected.keys.map { try Self.key($0) }.sorted()
    for (number, store) in stores.enumerated() {
      let shown = try show(store)
      guard shown == expected else {
        let wrong = Set(shown.keys).union(expected.keys).filter { shown[$0] != expected[$0] }.sorted()
        throw Difference(description: "after \(step) instance \(number) is wrong about keys \(wrong)")
      }
      guard try store.list().map(\.key) == keys else {
        throw Difference(
          description: "after \(step) instance \(number) lists \(try store.list().map(\.key)), not \(keys)")
      }
      let snapshot = try store.snapshot()
      guard try snapshot.list(prefix: Array("a/".utf8)).map(\.key) == keys.filter({ "\($0)".hasPrefix("a/") })
      else {
        throw Difference(description: "after \(step) a snapshot of instance \(number) lists other keys")
      }
      guard try store.list(reversed: true).map(\.key) == keys.reversed() else {
        throw Difference(description: "after \(step) instance \(number) lists other keys from behind")
      }
    }
  }
}

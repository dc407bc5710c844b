import SyncStore
import SyncTestSupport

/// A step applied to both a store and a dictionary. A script of steps is shrunk when the two differ.
enum StoreStep: Hashable, CustomStringConvertible {
  /// One write of a script: a size, or nil to delete; `life` in milliseconds, 0 for no deadline.
  struct Write: Hashable, CustomStringConvertible {
    var key: Int
    var size: Int?
    var life = 0

    var description: String { "\(key)\(size.map { " \($0)" } ?? " -")\(life > 0 ? " for \(life)" : "")" }
  }

  /// Only shared mode has more than one instance.
  case write(Write, isDurable: Bool, instance: Int)
  /// One transaction.
  case transact([Write], isDurable: Bool, instance: Int)
  /// A transaction that throws: it has no effect.
  case fail([Write], instance: Int)
  /// A transaction rolled back to a savepoint: the second list of writes is undone, the first one kept.
  case rollBack([Write], [Write], instance: Int)
  /// All keys with a prefix, in one transaction.
  case deleteUnder(prefix: Int, isDurable: Bool, instance: Int)
  /// Changes the deadline of a value.
  case expire(key: Int, life: Int, instance: Int)
  case sync(instance: Int)
  case compact(instance: Int)
  case wait(milliseconds: Int)
  case close
  case kill
  case losePower(seed: UInt64)

  var description: String {
    switch self {
    case .write(let write, let isDurable, let instance): "write(\(write), \(isDurable), \(instance))"
    case .transact(let writes, let isDurable, let instance): "transact(\(writes), \(isDurable), \(instance))"
    case .fail(let writes, let instance): "fail(\(writes), \(instance))"
    case .rollBack(let kept, let undone, let instance): "rollBack(\(kept), \(undone), \(instance))"
    case .deleteUnder(let prefix, let isDurable, let instance):
      "deleteUnder(\(prefix), \(isDurable), \(instance))"
    case .expire(let key, let life, let instance): "expire(\(key), \(life), \(instance))"
    case .sync(let instance): "sync(\(instance))"
    case .compact(let instance): "compact(\(instance))"
    case .wait(let milliseconds): "wait(\(milliseconds))"
    case .close: "close"
    case .kill: "kill"
    case .losePower(let seed): "losePower(\(seed))"
    }
  }

  /// Simpler replacements of this step.
  var simpler: [[StoreStep]] {
    switch self {
    case .transact(let writes, let isDurable, let instance) where writes.count > 1:
      writes.indices.map { index in
        var fewer = writes
        fewer.remove(at: index)
        return [.transact(fewer, isDurable: isDurable, instance: instance)]
      }
    case .write(let write, let isDurable, let instance) where write.life > 0:
      [[.write(Write(key: write.key, size: write.size), isDurable: isDurable, instance: instance)]]
    default: []
    }
  }
}

/// Store configuration of a script.
enum StoreSetting: String, CaseIterable {
  case plain, encrypted, shared, tail

  var isShared: Bool { self == .shared }
}

extension StoreStep {
  /// A script drawn from the seed.
  static func script(_ setting: StoreSetting, count: Int, _ random: inout SplitMix64) -> [StoreStep] {
    (0..<count).map { _ in step(setting, &random) }
  }

  private static func step(_ setting: StoreSetting, _ random: inout SplitMix64) -> StoreStep {
    let instance = setting.isShared ? random.below(2) : 0
    let isDurable = random.chance(50)
    switch random.below(30) {
    case 0...11: return .write(write(&random), isDurable: isDurable, instance: instance)
    case 12...14: return .transact(writes(&random), isDurable: isDurable, instance: instance)
    case 15: return .fail(writes(&random), instance: instance)
    case 16: return .rollBack(writes(&random), writes(&random), instance: instance)
    case 17: return .deleteUnder(prefix: random.below(3), isDurable: isDurable, instance: instance)
    case 18: return .expire(key: random.below(keyCount), life: 1 + random.below(5000), instance: instance)
    case 19, 20: return .sync(instance: instance)
    case 21, 22: return .compact(instance: instance)
    case 23, 24: return .wait(milliseconds: random.below(4000))
    case 25: return .close
    case 26, 27: return .kill
    default: return .losePower(seed: random.next())
    }
  }

  static let keyCount = 12

  private static func write(_ random: inout SplitMix64) -> Write {
    let key = random.below(keyCount)
    if random.chance(25) { return Write(key: key, size: nil) }
    // Some values go to the blob tier, some fill much of a segment.
    let size = random.pick([0, 1, 20, 20, 300, 3000, 9000, 25_000])
    return Write(key: key, size: size, life: random.chance(15) ? 1 + random.below(5000) : 0)
  }

  private static func writes(_ random: inout SplitMix64) -> [Write] {
    (0..<(1 + random.below(5))).map { _ in write(&random) }
  }
}

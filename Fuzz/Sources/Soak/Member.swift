import Foundation

/// One member at work: it writes, syncs with the hub, is killed. The record of its writes is kept outside of
/// any store.
final class Member: @unchecked Sendable {
  let machine: Machine
  let relay: Relay
  /// Whether it runs a daemon that stays connected.
  let keepsDaemon: Bool
  private var random: Generator
  private var number = 0

  /// Possible values of a key: the last acknowledged, and any written after it. Nil is absent.
  struct Written {
    var acknowledged: String?
    var begun: [String?] = []

    var possible: Set<String?> { Set([acknowledged] + begun) }
  }

  /// Keys written by this member only.
  private(set) var own: [String: Written] = [:]
  /// Its writes to shared keys: all of them, because any may have come last.
  private(set) var shared: [String: Set<String?>] = [:]
  private(set) var figures = Figures()

  struct Figures {
    var writes = 0, kills = 0, meetings = 0, broken = 0

    static func + (left: Self, right: Self) -> Self {
      Self(
        writes: left.writes + right.writes, kills: left.kills + right.kills,
        meetings: left.meetings + right.meetings, broken: left.broken + right.broken)
    }
  }

  init(_ machine: Machine, _ relay: Relay, keepsDaemon: Bool, seed: UInt64) {
    (self.machine, self.relay, self.keepsDaemon) = (machine, relay, keepsDaemon)
    random = Generator(state: seed)
  }

  /// Works until that time.
  func work(until end: Date) throws {
    if keepsDaemon { try machine.serve() }
    while Date() < end {
      try machine.checkDaemon()
      switch Int.random(in: 0..<100, using: &random) {
      case 0..<50: try write()
      case 50..<60: try writeMany()
      case 60..<88: try meet()
      case 88..<92: try killOneself()
      case 92..<94: try tidy()
      default: try disturb()
      }
    }
    relay.set(.passing)
  }

  // MARK: Writing

  private func key() -> (name: String, isOwn: Bool) {
    let isOwn = Int.random(in: 0..<3, using: &random) > 0
    let index = Int.random(in: 0..<40, using: &random)
    return (isOwn ? "\(machine.name)/\(index)" : "shared/\(index)", isOwn)
  }

  /// Unique text; sometimes a large value.
  private func value() -> String {
    number += 1
    let length =
      Int.random(in: 0..<12, using: &random) == 0 ? Int.random(in: 20_000...300_000, using: &random) : 20
    return "\(machine.name) \(number) " + String(repeating: "abcdefghij", count: length / 10)
  }

  private func note(_ key: (name: String, isOwn: Bool), _ value: String?, isDone: Bool) {
    guard key.isOwn else {
      shared[key.name, default: []].insert(value)
      return
    }
    if isDone {
      own[key.name] = Written(acknowledged: value)
    } else {
      own[key.name, default: Written()].begun.append(value)
    }
  }

  private func write() throws {
    let key = key()
    let value = Int.random(in: 0..<8, using: &random) == 0 ? nil : value()
    let command =
      try value.map { try machine.start(["put", key.name, "-", "--type", "string"], input: Array($0.utf8)) }
      ?? machine.start(["delete", key.name])
    let isKilled = killSometimes(command)
    let result = try end(of: command, "a write")
    switch result.code {
    case 0: note(key, value, isDone: true)
    // The key did not exist.
    case 1 where value == nil: note(key, value, isDone: true)
    case 137 where isKilled: note(key, value, isDone: false)
    default: throw Failure("\(machine.name): a write of \(key.name) ended with \(result.code): \(result.err)")
    }
    figures.writes += 1
  }

  /// Many of its own keys at once.
  private func writeMany() throws {
    var lines = ""
    var pairs: [(String, String)] = []
    for index in 0..<Int.random(in: 5...60, using: &random) {
      let (name, value) = ("\(machine.name)/many/\(index)", value())
      lines += "{\"key\": \"\(name)\", \"value\": \"\(value)\"}\n"
      pairs.append((name, value))
    }
    let command = try machine.start(["load", "-"], input: Array(lines.utf8))
    let isKilled = killSometimes(command)
    let result = try end(of: command, "load")
    guard result.code == 0 || isKilled && result.code == 137 else {
      throw Failure("\(machine.name): load ended with \(result.code): \(result.err)")
    }
    for (name, value) in pairs { note((name, true), value, isDone: result.code == 0) }
    figures.writes += pairs.count
  }

  private func killSometimes(_ command: Command) -> Bool {
    guard Int.random(in: 0..<15, using: &random) == 0 else { return false }
    usleep(UInt32.random(in: 0..<30_000, using: &random))
    command.signal(SIGKILL)
    figures.kills += 1
    return true
  }

  private func end(of command: Command, _ what: String) throws -> Command.Result {
    guard let result = command.end(within: 180) else {
      throw Failure("\(machine.name): \(what) does not end within 180 s")
    }
    return result
  }

  // MARK: Synchronization

  private func meet() throws {
    let word = ["sync", "sync", "push", "pull"].randomElement(using: &random)!
    let command = try machine.start([word, "hub"])
    let isKilled = killSometimes(command)
    let result = try end(of: command, word)
    switch result.code {
    case 0: figures.meetings += 1
    case 4: figures.broken += 1
    case 137 where isKilled: break
    default: throw Failure("\(machine.name): \(word) ended with \(result.code): \(result.err)")
    }
  }

  /// Kills and restarts the daemon.
  private func killOneself() throws {
    guard keepsDaemon else { return }
    figures.kills += 1
    try machine.end(by: Int.random(in: 0..<3, using: &random) == 0 ? SIGTERM : SIGKILL)
    try machine.serve()
  }

  private func tidy() throws {
    let result = try machine.run(["compact"])
    guard result.code == 0 else {
      throw Failure("\(machine.name): compact ended with \(result.code): \(result.err)")
    }
  }

  /// The link breaks, or the other side is silent for a while.
  private func disturb() throws {
    relay.set(Bool.random(using: &random) ? .cut : .silent)
    let end = Date().addingTimeInterval(Double.random(in: 0.2..<3, using: &random))
    while Date() < end { try write() }
    relay.set(.passing)
  }
}

/// SplitMix64.
struct Generator: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var value = state
    value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
    value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
    return value ^ (value >> 31)
  }
}

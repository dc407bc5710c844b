import Foundation
import SyncStore

/// Kills a writing process repeatedly, at random times, and checks after each kill that all acknowledged
/// writes are there and nothing is half done; measures how long opening takes.
///
///   Kills COUNT [steps | shared | containers]
///
/// With `steps` a pausable transaction is killed. With `shared` another process that has the store open keeps
/// writing and must see everything acknowledged to the killed one; so must the checker, a third process. With
/// `containers` the first two are in separate PID namespaces (needs root).
struct Kills {
  /// Knowledge about a key: the last acknowledged operation, and one that may have started after it.
  struct State {
    var acknowledged: (number: UInt64, deletes: Bool)?
    var begun: (number: UInt64, deletes: Bool)?
  }

  let count: Int
  let mode: Configuration.Mode
  let path = NSTemporaryDirectory() + "sync-store-kills-\(UUID().uuidString)"
  private var states = [State](repeating: State(), count: Load.keys)
  private var next: UInt64 = 1
  private var openings: [OpeningTime] = []
  /// Durations of first openings in a process.
  private var firstOpenings: [OpeningTime] = []
  private let growth = Growth()

  init(count: Int, mode: Configuration.Mode) { (self.count, self.mode) = (count, mode) }

  mutating func run() throws {
    try Store.create(at: path, configuration: Load.configuration(mode)).close()
    var survivor = mode == .shared ? try SurvivingWriter(at: path) : nil
    var others: [UInt64] = []
    for kill in 1...count {
      try childUntilKilled()
      if let survivor {
        let answer = try survivor.ask()
        others = others.isEmpty ? answer.own : zip(others, answer.own).map(max)
        try check(answer.seen, kill)
        try refuseExclusive(kill)
      }
      try look(after: kill, others)
      var numbers = ["operations": next - 1]
      if let last = others.max() { numbers["other writes"] = last }
      try growth.look(at: numbers, after: kill, of: count)
      if kill.isMultiple(of: 50), let ended = survivor {
        // It dies, too; the next one continues from its state.
        ended.kill()
        survivor = try SurvivingWriter(at: path)
      }
    }
    survivor?.kill()
    // After a failure the directory is kept for inspection.
    try FileManager.default.removeItem(atPath: path)
    print(
      "\(count) kills, \(next - 1) operations: nothing acknowledged is lost, nothing is half done; opening \(openings.summary); a process's first opening \(firstOpenings.summary)"
    )
  }

  private mutating func childUntilKilled() throws {
    for note in try KilledChild.notes(of: [mode == .shared ? "--load-shared" : "--load", path, String(next)])
    {
      let operation = (note.number, note.deletes)
      switch note.kind {
      case .begins: states[Int(note.key)].begun = operation
      case .done: (states[Int(note.key)].acknowledged, states[Int(note.key)].begun) = (operation, nil)
      case .seen, .own, .end, .opened: throw Failure("the child's notes are another's")
      }
      next = max(next, note.number + 1)
    }
  }

  /// `others` are the minimum numbers under the surviving writer's keys.
  private mutating func look(after kill: Int, _ others: [UInt64]) throws {
    // Every second time in a fresh process, which is killed, too: sometimes during the open.
    let isSecond = kill.isMultiple(of: 2)
    if isSecond {
      let told = try KilledChild.notes(of: [mode == .shared ? "--open-shared" : "--open", path])
      if told.count == 3 {
        let milliseconds = told.map { Double($0.number) / 1e6 }
        firstOpenings.append(
          OpeningTime(all: milliseconds[0], running: milliseconds[1], ready: milliseconds[2]))
      }
    }
    let (store, time) = try OpeningTime.of {
      try Store.open(at: path, configuration: Load.configuration(mode))
    }
    if !isSecond { openings.append(time) }
    defer { try? store.close() }
    var found: [UInt64?] = []
    for key in 0..<Load.keys {
      let value = try store.get(Load.key(UInt32(key)))?.bytes
      found.append(value.map { Load.number(of: $0) ?? .max })
    }
    try check(found, kill)
    for (key, acknowledged) in others.enumerated() where acknowledged > 0 {
      guard let number = try store.get(SurvivingWriter.key(key)).flatMap({ Load.number(of: $0.bytes) }),
        number >= acknowledged
      else { throw Failure("kill \(kill): write \(acknowledged) of the surviving writer is lost") }
    }
    if kill.isMultiple(of: 20) {
      let report = try store.verify()
      guard report.isClean else { throw Failure("kill \(kill): \(report.damage)") }
    }
  }

  /// Exclusive access must fail while others have the store open.
  private func refuseExclusive(_ kill: Int) throws {
    let outcome = Result { try Store.open(at: path, configuration: Load.configuration(.exclusive)) }
    if case .failure(let error as StoreError) = outcome, error.code == .busy { return }
    throw Failure("kill \(kill): the store is opened by one alone while another one writes")
  }

  /// Checks that each key has its acknowledged value, or the one being written at the kill.
  private mutating func check(_ all: [UInt64?], _ kill: Int) throws {
    var happened: [UInt64: Bool] = [:]
    for (key, found) in all.enumerated() {
      guard found != .max else {
        throw Failure("kill \(kill): key \(key) has a value that was never written")
      }
      let state = states[key]
      let before = state.acknowledged.flatMap { $0.deletes ? nil : $0.number }
      if let begun = state.begun {
        let after = begun.deletes ? nil : begun.number
        guard found == before || found == after else {
          throw Failure(
            "kill \(kill): key \(key) has \(found as Any), not \(before as Any) or \(after as Any)")
        }
        if before != after {
          let hasHappened = found == after
          if let other = happened.updateValue(hasHappened, forKey: begun.number), other != hasHappened {
            throw Failure("kill \(kill): operation \(begun.number) is half done")
          }
          if hasHappened { states[key].acknowledged = begun }
        }
        states[key].begun = nil
      } else if found != before {
        throw Failure("kill \(kill): key \(key) has \(found as Any), \(before as Any) was acknowledged")
      }
    }
  }

  struct Failure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
  }
}

let arguments = CommandLine.arguments
if arguments.count == 4, arguments[1] == "--load", let first = UInt64(arguments[3]) {
  try Load.run(at: arguments[2], from: first, .exclusive)
}
if arguments.count == 4, arguments[1] == "--load-shared", let first = UInt64(arguments[3]) {
  try Load.run(at: arguments[2], from: first, .shared)
}
if arguments.count == 3, arguments[1] == "--open" { try Load.open(at: arguments[2], .exclusive) }
if arguments.count == 3, arguments[1] == "--open-shared" { try Load.open(at: arguments[2], .shared) }
if arguments.count == 3, arguments[1] == "--survivor" { try SurvivingWriter.run(at: arguments[2]) }
if arguments.count == 4, arguments[1] == "--steps", let first = UInt64(arguments[3]) {
  try Steps.run(at: arguments[2], from: first)
}
if arguments.count == 3, arguments[2] == "steps", let count = Int(arguments[1]) {
  let kills = StepKills(count: count)
  do { try kills.run() } catch {
    FileHandle.standardError.write(Data("\(error); the store is left in \(kills.path)\n".utf8))
    exit(1)
  }
  exit(0)
}
var kills = Kills(
  count: arguments.dropFirst().first.flatMap { Int($0) } ?? 1000,
  mode: arguments.last == "shared" || arguments.last == "containers" ? .shared : .exclusive)
Container.isUsed = arguments.last == "containers"
do { try kills.run() } catch {
  FileHandle.standardError.write(Data("\(error); the store is left in \(kills.path)\n".utf8))
  exit(1)
}

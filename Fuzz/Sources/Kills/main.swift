import Foundation
import SyncStore

/// Kills a process that writes, again and again, at random moments, and looks after each kill whether all that was
/// acknowledged is there, nothing is half done, and how long opening takes.
///
///   Kills COUNT [steps]
///
/// With `steps` it is a pausable transaction that is killed.
struct Kills {
  /// What is known of a key: the operation that gave it what it has, and the one that may have begun after it.
  struct State {
    var acknowledged: (number: UInt64, deletes: Bool)?
    var begun: (number: UInt64, deletes: Bool)?
  }

  let count: Int
  let path = NSTemporaryDirectory() + "sync-store-kills-\(UUID().uuidString)"
  private var states = [State](repeating: State(), count: Load.keys)
  private var next: UInt64 = 1
  private var openings: [Double] = []
  private let growth = Growth()

  init(count: Int) { self.count = count }

  mutating func run() throws {
    try Store.create(at: path, configuration: Load.configuration).close()
    for kill in 1...count {
      try childUntilKilled()
      try look(after: kill)
      try growth.look(at: ["operations": next - 1], after: kill, of: count)
    }
    // After a failure it is left to be looked at.
    try FileManager.default.removeItem(atPath: path)
    openings.sort()
    print(
      "\(count) kills, \(next - 1) operations: nothing acknowledged is lost, nothing is half done; opening took "
        + "\(milliseconds(0.5)) ms in the middle, \(milliseconds(0.99)) ms at the 99th percentile")
  }

  private func milliseconds(_ share: Double) -> Double {
    (openings[Int(Double(openings.count - 1) * share)] * 10).rounded() / 10
  }

  private mutating func childUntilKilled() throws {
    for note in try KilledChild.notes(of: ["--load", path, String(next)]) {
      let operation = (note.number, note.deletes)
      switch note.kind {
      case .begins: states[Int(note.key)].begun = operation
      case .done: (states[Int(note.key)].acknowledged, states[Int(note.key)].begun) = (operation, nil)
      }
      next = max(next, note.number + 1)
    }
  }

  private mutating func look(after kill: Int) throws {
    let clock = ContinuousClock()
    let begin = clock.now
    let store = try Store.open(at: path, configuration: Load.configuration)
    let elapsed = (clock.now - begin).components
    openings.append(Double(elapsed.seconds) * 1e3 + Double(elapsed.attoseconds) / 1e15)
    defer { try? store.close() }
    var happened: [UInt64: Bool] = [:]
    for key in states.indices {
      let state = states[key]
      let found = try store.get(Load.key(UInt32(key))).map { value in
        guard let number = Load.number(of: value.bytes) else {
          throw Failure("kill \(kill): key \(key) has a value that was never written")
        }
        return number
      }
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
    if kill.isMultiple(of: 20) {
      let report = try store.verify()
      guard report.isClean else { throw Failure("kill \(kill): \(report.damage)") }
    }
  }

  struct Failure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
  }
}

let arguments = CommandLine.arguments
if arguments.count == 4, arguments[1] == "--load", let first = UInt64(arguments[3]) {
  try Load.run(at: arguments[2], from: first)
}
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
var kills = Kills(count: arguments.dropFirst().first.flatMap { Int($0) } ?? 1000)
do { try kills.run() } catch {
  FileHandle.standardError.write(Data("\(error); the store is left in \(kills.path)\n".utf8))
  exit(1)
}

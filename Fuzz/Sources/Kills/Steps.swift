import Foundation
import SyncStore

/// An endless pausable transaction, which another thread's writes make pause; killed at any time. Each step
/// writes its number to several keys, sometimes rolls a write back, and sometimes fails as a whole.
struct Steps {
  static let keys = ["a", "b", "c", "d"]
  static let configuration = Configuration(durability: .relaxed, segmentBytes: 256 << 10)
  /// Number under which notes report the steps, and the other thread's writes.
  static let step: UInt32 = 0
  static let other: UInt32 = 1

  private struct Refused: Error {}

  static func run(at path: String, from first: UInt64) throws -> Never {
    let store = try Store.open(at: path, configuration: configuration)
    let others = Thread {
      do { try write(store) } catch {
        // Without its writes the transaction would never pause: the whole process ends, and its parent fails.
        FileHandle.standardError.write(Data("the other thread: \(error)\n".utf8))
        exit(1)
      }
    }
    others.start()
    var number = first
    while true {
      do {
        try store.pausableTransaction { transaction in
          // It is called again only after the previous step was committed.
          if number > first { try tell(number - 1, step) }
          for key in keys {
            try transaction.put(Key("step/" + key), number)
            if number.isMultiple(of: 7) {
              try? transaction.nested { transaction in
                try transaction.put(Key("step/" + key), UInt64.max)
                throw Refused()
              }
            }
          }
          if number.isMultiple(of: 11), Bool.random() { throw Refused() }
          number += 1
          return .next
        }
      } catch is Refused {
        // The refused step was undone; it is repeated.
        if number > first { try tell(number - 1, step) }
      }
    }
  }

  private static func write(_ store: Store) throws {
    var number = try store.get("other", default: UInt64(0))
    while true {
      number += 1
      try store.put("other", number)
      try tell(number, other)
    }
  }

  private static func tell(_ number: UInt64, _ key: UInt32) throws {
    let note = Load.Note(number: number, key: key, deletes: false, kind: .done)
    try FileHandle.standardOutput.write(contentsOf: Data(note.bytes))
  }
}

/// Kills `Steps` repeatedly, and checks that each step is present completely or not at all, no committed one
/// is lost, and the other thread's writes are there.
struct StepKills {
  let count: Int
  private let growth = Growth()
  let path = NSTemporaryDirectory() + "sync-store-steps-\(UUID().uuidString)"

  func run() throws {
    try Store.create(at: path, configuration: Steps.configuration).close()
    var (steps, others): (UInt64, UInt64) = (0, 0)
    for kill in 1...count {
      let told = try KilledChild.notes(of: ["--steps", path, String(steps + 1)])
      let store = try Store.open(at: path, configuration: Steps.configuration)
      defer { try? store.close() }
      let found = try Steps.keys.map { try store.get(Key("step/" + $0), default: UInt64(0)) }
      guard Set(found).count == 1, let step = found.first else {
        throw Kills.Failure("kill \(kill): a step is half done: \(found)")
      }
      let acknowledged = max(steps, told.filter { $0.key == Steps.step }.map(\.number).max() ?? 0)
      guard step == acknowledged || step == acknowledged + 1 else {
        throw Kills.Failure("kill \(kill): step \(step) is there, \(acknowledged) was committed")
      }
      let other = try store.get("other", default: UInt64(0))
      let written = max(others, told.filter { $0.key == Steps.other }.map(\.number).max() ?? 0)
      guard other == written || other == written + 1 else {
        throw Kills.Failure(
          "kill \(kill): write \(other) of the other thread is there, \(written) was acknowledged")
      }
      (steps, others) = (step, other)
      try growth.look(at: ["steps": steps, "writes of the other thread": others], after: kill, of: count)
      if kill.isMultiple(of: 20) {
        let report = try store.verify()
        guard report.isClean else { throw Kills.Failure("kill \(kill): \(report.damage)") }
      }
    }
    try FileManager.default.removeItem(atPath: path)
    print(
      "\(count) kills, \(steps) steps during \(others) other writes: each step is whole, none is lost"
    )
  }
}

/// Checks progress between kills: a child that is idle or stuck loses nothing either.
final class Growth {
  /// Number of kills within which each number must have grown. Some kills hit before the child has opened the
  /// store.
  static let kills = 20
  private var last: [String: UInt64] = [:]

  func look(at numbers: [String: UInt64], after kill: Int, of count: Int) throws {
    guard kill.isMultiple(of: Self.kills) || kill == count && count < Self.kills else { return }
    for (name, number) in numbers {
      guard number > last[name, default: 0] else {
        throw Kills.Failure("kill \(kill): \(number) \(name), no more than \(Self.kills) kills before")
      }
    }
    last = numbers
  }
}

/// This program as a child, killed after some milliseconds.
enum KilledChild {
  /// Its reports until then.
  static func notes(of arguments: [String]) throws -> [Load.Note] {
    let child = Process()
    Container.prepare(child, arguments)
    // A trap must end the process at once: during a backtrace it would still be killed, which hides the trap.
    child.environment = ProcessInfo.processInfo.environment.merging(["SWIFT_BACKTRACE": "enable=no"]) { $1 }
    let pipe = Pipe()
    child.standardOutput = pipe
    try child.run()
    let process = child.processIdentifier
    DispatchQueue.global().asyncAfter(deadline: .now() + .microseconds(Int.random(in: 2_000...60_000))) {
      Container.kill(process)
    }
    // Up to the end: reports sent before the kill are in the pipe.
    let told = [UInt8](pipe.fileHandleForReading.readDataToEndOfFile())
    child.waitUntilExit()
    // An uncaught error and a failed precondition also end in a signal. The child's message is on standard
    // error, which is inherited.
    let (reason, status) = (child.terminationReason, child.terminationStatus)
    guard reason == .uncaughtSignal, status == SIGKILL else {
      throw Kills.Failure(
        "the child ended by itself, with \(reason == .exit ? "exit code" : "signal") \(status)")
    }
    return try stride(from: 0, to: told.count - told.count % 16, by: 16).map { start in
      guard let note = Load.Note(told[start..<(start + 16)]) else {
        throw Kills.Failure("the child's notes are broken")
      }
      return note
    }
  }
}

/// Where the children run.
enum Container {
  /// Each in its own PID namespace, as in a container: all are process 1, with equal thread numbers.
  nonisolated(unsafe) static var isUsed = false

  /// Kills a child that `prepare` made. It leads a process group of its own, which is killed as a whole:
  /// `--kill-child` takes effect only once `unshare` has forked and the fork has asked for it. A kill of
  /// `unshare` alone before that leaves the program running for ever, and its parent waiting for its notes.
  static func kill(_ process: pid_t) { _ = Foundation.kill(-process, SIGKILL) }

  /// Makes `child` run this program with these arguments.
  static func prepare(_ child: Process, _ arguments: [String]) {
    let program = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
    guard isUsed else {
      (child.executableURL, child.arguments) = (program, arguments)
      return
    }
    child.executableURL = URL(fileURLWithPath: "/usr/bin/unshare")
    child.arguments = ["--pid", "--fork", program.path] + arguments
  }
}

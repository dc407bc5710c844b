import Foundation

/// A hub and many members as real processes: for some minutes they write, sync, are killed, stopped and cut
/// off. At the end all must hold the same intact content, and every write acknowledged to a member.
///
///   Soak PROGRAM MINUTES MEMBERS [SEED]
struct Soak {
  let program: String
  let seconds: Double
  let count: Int
  let seed: UInt64
  let folder = NSTemporaryDirectory() + "sync-store-soak-\(UUID().uuidString)"

  func run() throws {
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    let hub = Machine("hub", program, below: folder)
    try hub.succeed(["init", "--name", "hub"])
    let port = try hub.serve()
    let members = try (0..<count).map { try join(hub, $0, Relay(to: port)) }
    let end = Date().addingTimeInterval(seconds)
    let failures = Failures()
    let crew = DispatchGroup()
    for member in members {
      DispatchQueue(label: member.machine.name).async(group: crew) {
        do { try member.work(until: end) } catch { failures.add(error) }
      }
    }
    var random = Generator(state: seed)
    var (kills, pauses) = (0, 0)
    while Date() < end, failures.isEmpty {
      Thread.sleep(forTimeInterval: Double.random(in: 1..<8, using: &random))
      if Bool.random(using: &random) {
        pauses += 1
        hub.pause(true)
        Thread.sleep(forTimeInterval: Double.random(in: 0.1..<4, using: &random))
        hub.pause(false)
      } else {
        kills += 1
        try hub.end(by: Int.random(in: 0..<4, using: &random) == 0 ? SIGTERM : SIGKILL)
        try hub.serve(port: port)
      }
      try hub.checkDaemon()
    }
    crew.wait()
    if let failure = failures.first { throw failure }
    try compare(hub, members)
    // A member without a sync during the faults converged only afterwards, which proves little.
    let fewest = members.map(\.figures.meetings).min() ?? 0
    guard fewest > 0 || seconds < 120 else { throw Failure("a member met no other in \(Int(seconds)) s") }
    let figures = members.reduce(Member.Figures()) { $0 + $1.figures }
    let passed = members.reduce(0) { $0 + $1.relay.passed }
    print(
      """
      \(count) members, \(Int(seconds)) s, seed \(seed): \(figures.writes) writes, \(figures.meetings) meetings (no member \
      less than \(fewest)), \(figures.broken) broken ones, \(figures.kills) kills of members, \(kills) ends and \(pauses) pauses of the hub, \(passed >> 20) MiB \
      passed on: all hold the same, nothing acknowledged is lost
      """)
    for member in members { try member.machine.end(by: SIGTERM) }
    try hub.end(by: SIGTERM)
    try FileManager.default.removeItem(atPath: folder)
  }

  private func join(_ hub: Machine, _ number: Int, _ relay: Relay) throws -> Member {
    let machine = Machine("m\(number)", program, below: folder)
    let token = try hub.succeed(["invite", "--ttl", "1h", "--address", "127.0.0.1:\(relay.port)"]).text
    for attempt in 1... {
      let result = try machine.run(["join", token, "--name", machine.name])
      if result.code == 0 { break }
      // The hub limits joins per minute.
      guard result.err.contains("too many attempts"), attempt < 60 else {
        throw Failure("\(machine.name) cannot join: \(result.code): \(result.err)")
      }
      Thread.sleep(forTimeInterval: 5)
    }
    return Member(machine, relay, keepsDaemon: number % 4 == 0, seed: seed &+ UInt64(number) &* 1_000_003)
  }

  /// All sync until they have converged, and then must hold the same.
  private func compare(_ hub: Machine, _ members: [Member]) throws {
    // A delete purged in one copy and another copy's sync need a few passes.
    for pass in 0..<5 {
      for member in members {
        let result = try member.machine.run(["sync", "hub"])
        guard result.code == 0 || pass < 4 else {
          throw Failure("\(member.machine.name) cannot come into step: \(result.code): \(result.err)")
        }
      }
      let digests = try Set(([hub] + members.map(\.machine)).map { try $0.succeed(["digest"]).text })
      if digests.count == 1, pass > 0 { break }
    }
    let dump = try hub.succeed(["dump"]).out
    let digest = try hub.succeed(["digest"]).text
    for machine in [hub] + members.map(\.machine) {
      guard try machine.succeed(["digest"]).text == digest else {
        throw Failure("the digest of \(machine.name) is not the hub's")
      }
      guard try machine.succeed(["dump"]).out == dump else {
        throw Failure("\(machine.name) does not hold what the hub holds")
      }
      try machine.succeed(["verify"])
    }
    try check(dump, members)
  }

  /// Checks that the common content is what was written.
  private func check(_ dump: [UInt8], _ members: [Member]) throws {
    struct Line: Decodable { var key: String, value: String? }
    var found: [String: String] = [:]
    for line in dump.split(separator: 10) {
      let line = try JSONDecoder().decode(Line.self, from: Data(line))
      found[line.key] = line.value ?? ""
    }
    var shared: [String: Set<String?>] = [:]
    for member in members {
      for (key, written) in member.own where !written.possible.contains(found[key]) {
        throw Failure("\(key) is \(shown(found[key])), not one of \(written.possible.map(shown))")
      }
      for (key, values) in member.shared { shared[key, default: []].formUnion(values) }
    }
    for (key, value) in found where key.hasPrefix("shared/") && !(shared[key]?.contains(value) ?? false) {
      throw Failure("\(key) is \(shown(value)), which no member wrote")
    }
    // A key that all have written and none deleted must exist.
    for (key, values) in shared where found[key] == nil && !values.contains(nil) {
      throw Failure("\(key) is gone, and no member deleted it")
    }
  }

  private func shown(_ value: String?) -> String { value.map { "\"\($0.prefix(30))\"" } ?? "nothing" }
}

final class Failures: @unchecked Sendable {
  private let lock = NSLock()
  private var errors: [any Error] = []
  func add(_ error: any Error) { lock.withLock { errors.append(error) } }
  var first: (any Error)? { lock.withLock { errors.first } }
  var isEmpty: Bool { first == nil }
}

let words = CommandLine.arguments
guard words.count >= 4, let minutes = Double(words[2]), let count = Int(words[3]), count > 0, minutes > 0
else {
  FileHandle.standardError.write(Data("usage: Soak PROGRAM MINUTES MEMBERS [SEED]\n".utf8))
  exit(2)
}
let seed = words.count > 4 ? UInt64(words[4]) ?? 1 : UInt64.random(in: 0..<1_000_000)
let soak = Soak(program: words[1], seconds: minutes * 60, count: count, seed: seed)
do { try soak.run() } catch {
  FileHandle.standardError.write(Data("seed \(seed): \(error)\nthe stores are left in \(soak.folder)\n".utf8))
  exit(1)
}

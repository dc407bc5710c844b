import DemoSupport
import SyncStore

/// `edge-sensors demo`, or its parts separately:
///
///     edge-sensors hub DIR HOST:PORT
///     edge-sensors invite DIR
///     edge-sensors edge DIR SITE SECONDS [TOKEN]     readings are kept for SECONDS
///     edge-sensors show DIR SITE
@main
struct EdgeSensors {
  static func main() async { await reportingErrors(run) }

  static func run() async throws {
    let words = Array(CommandLine.arguments.dropFirst())
    switch (words.first ?? "demo", words.count) {
    case ("demo", _): try await withScratch(demo)
    case ("hub", 3): try await Hub.run(at: words[1], listen: words[2])
    case ("invite", 2): say(try Hub.invite(at: words[1]))
    case ("edge", 4...5):
      try await Edge.run(
        at: words[1], site: words[2], retention: (UInt64(words[3]) ?? 86_400) * 1000,
        token: words.count == 5 ? words[4] : nil)
    case ("show", 3):
      let store = try Store.open(at: words[1], configuration: Configuration(mode: .readOnly))
      let log = SensorLog(store: store, site: words[2], retention: 0)
      say(
        "\(try log.numbers.count) readings, the last is \(try log.last), mean \(try log.mean(last: 100) ?? 0)"
      )
    default: throw DemoFailure("what is \(words)? see the comment at the top of this file")
    }
  }

  static func demo(_ scratch: String) async throws {
    let (hubPath, edgePath) = (scratch + "/hub", scratch + "/edge")
    say("A hub listens; an edge joins, logs 16 readings at a time, and pushes.")
    var hub = try Program(in: scratch, "hub", hubPath, "127.0.0.1:0")
    let address = try await hub.line("listening on ")
    let token = try Hub.invite(at: hubPath)
    var edge = try Program(in: scratch, "edge", edgePath, "cellar", "3600", token)
    _ = try await edge.line("pushed ")

    say("The hub is gone. The edge goes on logging.")
    hub.kill()
    _ = try await edge.line("offline: ")
    try await Task.sleep(for: .milliseconds(300))

    say("The edge is killed in the middle of its work, twice, and started again: without a network.")
    for _ in 0..<2 {
      edge.kill()
      let acknowledged = Int(try await edge.line("logged ")) ?? 0
      edge = try Program(in: scratch, "edge", edgePath, "cellar", "3600")
      let last = Int(try await edge.line("goes on behind ")) ?? 0
      try check(
        last >= acknowledged && last % 16 == 0,
        "all \(acknowledged) that were logged are there, no half burst")
      _ = try await edge.line("logged ")
      try await Task.sleep(for: .milliseconds(100))
    }

    say("The hub is back.")
    hub = try Program(in: scratch, "hub", hubPath, address)
    _ = try await hub.line("listening on ")
    _ = try await edge.line("pushed ")
    edge.kill()
    let edgeStore = try Store.open(at: edgePath)
    let log = SensorLog(store: edgeStore, site: "cellar", retention: 500)
    try await pushOnce(edgeStore)
    let hubStore = try Store.open(at: hubPath, configuration: Hub.shared)
    let mirror = SensorLog(store: hubStore, site: "cellar", retention: 500)
    try check(
      try mirror.numbers == Array(1...(try log.last)),
      "the hub has all \(try log.last) readings, without a gap")
    try check(try hubStore.digest() == edgeStore.digest(), "both copies are the same")

    say("Retention: from now on readings are kept for half a second.")
    let before = try log.last
    _ = try log.append((0..<16).map { _ in Reading(time: milliseconds(), celsius: 20) })
    try await pushOnce(edgeStore)
    let wasThere = try mirror.last == before + 16
    try await Task.sleep(for: .milliseconds(600))
    try check(try wasThere && mirror.numbers.last == before, "those are gone on the hub, too")
    try edgeStore.close()
    try hubStore.close()
    hub.kill()
    say("edge-sensors: all is well")
  }
}

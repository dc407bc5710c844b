import Foundation
import SyncTestSupport
import Testing

/// Real processes on two hosts whose network is cut and restored.
@Suite(
  "Two hosts with a cable between them",
  .enabled(if: HostPair.isAvailable, "needs the rights to make network namespaces, and iproute2"),
  .timeLimit(.minutes(Patience.minutes(2))))
struct TwoHostTests {
  private let pair: HostPair
  private let alpha: Tool
  private let beta: Tool

  init() throws {
    let scratch = try Scratch()
    pair = try HostPair()
    alpha = Tool(store: scratch.path + "/alpha", scratch: scratch, launcher: pair.launcher(of: 0))
    beta = Tool(store: scratch.path + "/beta", scratch: scratch, launcher: pair.launcher(of: 1))
    try alpha.succeed("init", "--name", "alpha")
  }

  private func serve(_ tool: Tool, port: String = "0") throws -> Daemon {
    try Daemon(tool, at: HostPair.addresses[tool.store == alpha.store ? 0 : 1] + ":" + port)
  }

  /// Waits until both have the same state; the time limit of the suite bounds it.
  private func comeIntoStep() throws {
    while try alpha.succeed("digest").text != beta.succeed("digest").text {
      try Task.checkCancellation()
      Thread.sleep(forTimeInterval: 0.05)
    }
  }

  @Test(
    "F65 copies written during a partition converge afterwards: later writes win, losers are kept"
  )
  func partition() throws {
    let server = try serve(alpha)
    try alpha.succeed("put", "both", "at first")
    for number in 0..<20 { try alpha.succeed("put", "k\(number)", "alpha") }
    _ = try server.join(beta)
    let client = try serve(beta)
    // A live session is open.
    try beta.succeed("put", "live", "x")
    try comeIntoStep()

    try pair.cut()
    try alpha.writeApart(from: beta)
    #expect(try alpha.succeed("get", "both").text == "earlier" && beta.succeed("get", "both").text == "later")
    #expect(try alpha.succeed("digest").text != beta.succeed("digest").text)

    try pair.mend()
    try comeIntoStep()
    for tool in [alpha, beta] {
      #expect(try tool.succeed("get", "both").text == "later")
      #expect(try tool.run("get", "k1").code == 1 && tool.run("get", "k2").code == 1)
      #expect(try tool.succeed("get", "k3").text == "beta")
      #expect(try tool.succeed("verify").text.contains("all whole"))
    }
    // Losers are kept where they were written: a value that lost before it was sent is not sent.
    let conflicts = try alpha.succeed("conflicts", "list").text
    #expect(conflicts.contains("\"earlier\"") && conflicts.contains("\"beaten by a delete\""))
    try client.end()
    try server.end()
  }

  @Test("F68 F72 copies resume although one was killed and restarted during the partition")
  func killed() throws {
    var server = try serve(alpha)
    let port = try #require(server.address.split(separator: ":").last.map(String.init))
    _ = try server.join(beta)
    let client = try serve(beta)
    try beta.succeed("put", "live", "x")
    try comeIntoStep()

    try pair.cut()
    server.running.signal(SIGKILL)
    #expect(server.running.finish().code == 128 + SIGKILL)
    for number in 0..<20 { try beta.succeed("put", "b\(number)", "written while nobody was there") }
    try alpha.succeed("put", "a", "written while nothing ran")
    server = try serve(alpha, port: port)

    try pair.mend()
    try comeIntoStep()
    #expect(try alpha.succeed("get", "b19").text == "written while nobody was there")
    #expect(try beta.succeed("get", "a").text == "written while nothing ran")
    try client.end()
    try server.end()
  }

  @Test("F69 a disconnect is reported as a network failure, and loses nothing of an interrupted transfer")
  func cutInTheMiddle() throws {
    let server = try serve(alpha)
    _ = try server.join(beta)
    try pair.cut()
    // The other host is unreachable: its address is known, but does not answer.
    let alone = try alpha.run("sync", HostPair.addresses[1] + ":7420")
    #expect(alone.code == 4, "\(alone.err)")
    try pair.mend()
    let source = try #require(FileHandle(forReadingAtPath: "/dev/urandom"))
    let content = try #require(try source.read(upToCount: 40_000_000))
    let bytes = [UInt8](content)
    try beta.succeed("put", "large", "-", input: bytes)
    let push = try beta.start(["push", "alpha"])
    Thread.sleep(forTimeInterval: 0.2)
    try pair.cut()
    Thread.sleep(forTimeInterval: 0.2)
    try pair.mend()
    let result = push.finish()
    #expect(result.code == 0, "\(result.err)")
    #expect(try alpha.succeed("get", "large").out == bytes)
    try comeIntoStep()
    try server.end()
  }

  /// Both daemons with a live session between them.
  private func live() throws -> (server: Daemon, client: Daemon) {
    let server = try serve(alpha)
    _ = try server.join(beta)
    // On any address, since the host's own one changes.
    let client = try Daemon(beta, at: "0.0.0.0:0")
    try beta.succeed("put", "live", "x")
    try comeIntoStep()
    return (server, client)
  }

  @Test(
    "F68 a connection whose local address is gone is dropped at once; pending writes arrive from the new one"
  )
  func moved() throws {
    let (server, client) = try live()
    try pair.cut(from: 1)
    try beta.succeed("put", "pending", "1")
    try pair.move(1, from: HostPair.addresses[1], to: "192.0.2.77")
    // A host that loses its last address drops its neighbour table.
    try? pair.mend(from: 1)
    try comeIntoStep()
    #expect(try alpha.succeed("get", "pending").text == "1")
    #expect(client.running.err.contains("alpha: reached again"))
    try client.end()
    try server.end()
  }

  @Test("F68 copies are in sync as soon as the cable is plugged in again, both ways", arguments: [0, 1])
  func plugged(host: Int) throws {
    let (server, client) = try live()
    try pair.plug(host, isIn: false)
    try alpha.succeed("put", "a", "1")
    try beta.succeed("put", "b", "2")
    // Long enough for the kernel to retry several times and to back off.
    Thread.sleep(forTimeInterval: 3)
    try pair.plug(host, isIn: true)
    try comeIntoStep()
    #expect(try alpha.succeed("get", "b").text == "2" && beta.succeed("get", "a").text == "1")
    try client.end()
    try server.end()
  }

  /// Silent loss takes long to be detected: not in the ordinary run.
  @Test(
    "F68 copies are in sync soon after one-way loss ends, with and without writes during it",
    .enabled(if: ProcessInfo.processInfo.environment["SYNC_LONG_TESTS"] != nil, "set SYNC_LONG_TESTS"),
    .timeLimit(.minutes(Patience.minutes(10))), arguments: [0, 1], [true, false])
  func oneWay(host: Int, writes: Bool) throws {
    let (server, client) = try live()
    try pair.cut(from: host)
    if writes { for tool in [alpha, beta] { try tool.succeed("put", "during", "1") } }
    Thread.sleep(forTimeInterval: 60)
    try pair.mend(from: host)
    let begin = Date()
    try alpha.succeed("put", "after alpha", "1")
    try beta.succeed("put", "after beta", "1")
    try comeIntoStep()
    print("in step", Date().timeIntervalSince(begin), "s after one-way loss, host \(host), writes \(writes)")
    #expect(
      try alpha.succeed("get", "after beta").text == "1" && beta.succeed("get", "after alpha").text == "1")
    try client.end()
    try server.end()
  }
}

import Foundation
import SyncTestSupport
import Testing

/// Runs the steps of the tutorials in order, as a reader would.
@Suite struct TutorialTests {
  private static let resources = Checkout.top + "/Sources/SyncStore/SyncStore.docc/Resources/"

  /// The file of a step, with the port of the test.
  private static func step(_ name: String, port: Int) throws -> String {
    try String(contentsOfFile: resources + name, encoding: .utf8)
      .replacingOccurrences(of: "127.0.0.1:7420", with: "127.0.0.1:\(port)")
  }

  /// Runs the steps of a tutorial in order; the one called `daemon` keeps running in the background.
  private static func run(
    _ steps: [String], daemon: String? = nil, port: Int, in scratch: Scratch
  ) throws -> (code: Int32, out: String) {
    var script = "set -eu; mkdir bin; ln -s \"$CLI\" bin/sync-cli; export PATH=$PWD/bin:$PATH HOME=$PWD\n"
    for step in steps {
      let text = try Self.step(step, port: port)
      guard step == daemon else {
        script += text + "\n"
        continue
      }
      let lines = text.split(separator: "\n")
      script += lines.dropLast().joined(separator: "\n") + "\n"
      script += "\(lines[lines.count - 1]) > daemon.out 2> daemon.err &\nserver=$!\n"
      script += "trap 'kill $server; wait $server || true' EXIT\n"
      script += "for try in $(seq 600); do grep -q 'listening on' daemon.out && break; sleep 0.05; done\n"
    }
    return try scratch.shell(script)
  }

  @Test("push and pull")
  func pushAndPull() throws {
    let scratch = try Scratch()
    let steps = [
      "push-1-office.sh", "push-2-listen.sh", "push-3-invite.sh", "push-4-join.sh", "push-5-offline.sh",
      "push-6-sync.sh", "push-7-check.sh",
    ]
    let result = try Self.run(steps, daemon: "push-2-listen.sh", port: try Self.freePort(), in: scratch)
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.contains("Rotterdam, 6 o'clock"))
    #expect(result.out.contains("left port"))
  }

  @Test("members that never meet")
  func relay() throws {
    let scratch = try Scratch()
    let steps = [
      "relay-1-office.sh", "relay-2-place.sh", "relay-3-ask.sh", "relay-4-answer.sh", "relay-5-pier.sh",
      "relay-6-write.sh", "relay-7-status.sh", "relay-8-check.sh",
    ]
    let result = try Self.run(steps, port: try Self.freePort(), in: scratch)
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.contains("free from Tuesday"))
    let digests = result.out.split(separator: "\n").suffix(3)
    #expect(Set(digests).count == 1, "\(result.out)")
  }

  @Test("the daemon")
  func daemon() throws {
    let scratch = try Scratch()
    let port = try Self.freePort()
    try scratch.write("serve.json", Array(try Self.step("daemon-2-serve.json", port: port).utf8))
    let steps = [
      "daemon-1-init.sh", "daemon-3-serve.sh", "daemon-6-beside.sh", "daemon-7-other.sh",
      "daemon-8-status.sh",
    ]
    let result = try Self.run(steps, daemon: "daemon-3-serve.sh", port: port, in: scratch)
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.contains("3 apples"))
    #expect(result.out.contains("price/pears"))
    #expect(result.out.contains("till"))
  }

  @Test("every step is tested")
  func complete() throws {
    let tutorials = ["PushAndPull", "HeadlessDaemon", "MembersThatNeverMeet"]
    for tutorial in tutorials {
      let text = try String(
        contentsOfFile: Self.resources + "../\(tutorial).tutorial", encoding: .utf8)
      let named = Set(text.matches(of: /file: "([^"]+)"/).map { String($0.1) })
      let prefix = try #require(named.first).prefix { $0 != "-" } + "-"
      let there = try FileManager.default.contentsOfDirectory(atPath: Self.resources).filter {
        $0.hasPrefix(prefix)
      }
      #expect(named == Set(there))
      #expect(there.count >= 7)
    }
  }

  /// A port on which no process listens at this moment.
  static func freePort() throws -> Int {
    let scratch = try Scratch()
    let answer = try scratch.shell(
      #"for port in $(shuf -i 20000-30000 -n 50); do (: < /dev/tcp/127.0.0.1/$port) 2>/dev/null || { echo $port; break; }; done"#
    )
    return try #require(Int(answer.out.trimmingCharacters(in: .whitespacesAndNewlines)))
  }
}

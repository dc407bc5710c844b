import Foundation
import SyncStore
import SyncTestSupport
import Testing

extension Running {
  fileprivate var text: String { String(decoding: out, as: UTF8.self) }

  /// Waits until the output meets the condition. A program that never does is killed, so that its test fails.
  fileprivate func wait(until condition: (String) -> Bool) {
    let end = Date().addingTimeInterval(60 * Double(Patience.minutes(1)))
    while isRunning, !condition(text) {
      if Date() > end { signal(SIGKILL) }
      Thread.sleep(forTimeInterval: 0.01)
    }
  }
}

/// `watch`, run as a process while other processes write.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct WatchTests {
  /// A running watch that has begun: it has printed the write of `mark`, which is no part of `lines`.
  private struct Watching {
    let running: Running
    private let skipped: Int

    init(_ tool: Tool, _ words: [String] = [], mark: String = "mark") throws {
      running = try tool.start(["watch"] + words)
      for _ in 0..<1000 where running.isRunning && running.out.isEmpty {
        try tool.succeed("put", mark, "x")
        Thread.sleep(forTimeInterval: 0.02)
      }
      // The last writes of the mark may be printed later.
      try tool.succeed("delete", mark)
      running.wait { $0.contains("delete") }
      skipped = running.text.split(separator: "\n").count
    }

    var lines: [String] {
      running.text.split(separator: "\n").dropFirst(skipped).map(String.init)
    }

    func lines(_ count: Int) -> [String] {
      running.wait { _ in lines.count >= count }
      return lines
    }
  }

  /// The position that an ended watch has told.
  private func position(_ result: Tool.Result) throws -> String {
    try String(#require(result.err.firstMatch(of: /watch: ended: go on with --from (\S+)\n/)).1)
  }

  @Test(
    "each change of other processes is one line, in order, and a signal ends it with 0 and the position",
    arguments: [SIGINT, SIGTERM, SIGHUP])
  func changes(signal: Int32) throws {
    let tool = try Scratch().store()
    let watching = try Watching(tool)
    try tool.succeed("put", "a", "1")
    try tool.succeed(
      "load", "-", input: Array("{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":\"c\",\"value\":\"3\"}".utf8))
    try tool.succeed("delete", "b")
    #expect(watching.lines(4) == ["put\ta", "put\tb", "put\tc", "delete\tb"])
    watching.running.signal(signal)
    let result = watching.running.finish()
    #expect(result.code == 0, "\(result.err)")

    try tool.succeed("put", "later", "4")
    let next = try tool.start(["watch", "--from", position(result), "--once", "--quiet"]).finish()
    #expect(next.code == 0 && next.text == "put\tlater\n" && next.err.isEmpty, "\(next)")
  }

  @Test("only keys with the prefix are shown, while a daemon has the store open")
  func prefix() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    let watching = try Watching(daemon.tool, ["order/"], mark: "order/mark")
    try daemon.tool.succeed("put", "other", "1")
    try beta.succeed("put", "order/7", "2")
    try beta.succeed("push", "alpha")
    #expect(watching.lines(1) == ["put\torder/7"])
    watching.running.signal(SIGTERM)
    #expect(watching.running.finish().code == 0)
    try daemon.end()
  }

  @Test("a line of JSON has the event, the key and value as `get --json`, and the position to go on from")
  func json() throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "n", "5", "--type", "int")
    let start = try position(tool.run("watch", "--from", "0", "--once"))
    try tool.succeed("put", "large", "-", input: [UInt8](repeating: 65, count: 100_000))
    try tool.succeed("put", "brief", "x", "--ttl", "1h")
    try tool.succeed("delete", "n")
    var seen: [[String: Any]] = []
    var from = start
    for _ in 0..<3 {
      let line = try tool.run("watch", "--json", "--once", "--from", from).text
      let object = try JSONSerialization.jsonObject(with: Data(line.utf8))
      let members = try #require(object as? [String: Any])
      from = try #require(members["position"] as? String)
      seen.append(members)
    }
    #expect(seen.map { $0["event"] as? String } == ["put", "put", "delete"])
    #expect(seen.map { $0["key"] as? String } == ["large", "brief", "n"])
    #expect((seen[0]["value"] as? String)?.count == 100_000)
    #expect(seen[1]["type"] as? String == "bytes" && (seen[1]["expires"] as? Int ?? 0) > 0)
    #expect(seen[2]["value"] == nil && seen[2]["type"] == nil)
    // The value is gone from the disk: the line has its size and hash, and the rest follows.
    try FileManager.default.removeItem(atPath: tool.store + "/blobs")
    let missing = try tool.run("watch", "--json", "--once", "--from", start)
    #expect(missing.code == 0 && missing.text.contains("\"size\":100000,\"blob\":\""), "\(missing)")
    #expect(missing.err.contains("watch large: "))
  }

  @Test("with --initial the keys of one moment come first, and no write is missed or doubled")
  func initial() throws {
    let tool = try Scratch().store()
    let count = 3000
    let lines = (0..<count).map { "{\"key\":\"k\(1000 + $0)\",\"value\":\"v\"}\n" }
    try tool.succeed("load", "-", input: Array(lines.prefix(1000).joined().utf8))
    let writer = try tool.start(["load", "-"], input: Array(lines.dropFirst(1000).joined().utf8))
    let watch = try tool.start(["watch", "k", "--initial"])
    #expect(writer.finish().code == 0)
    watch.wait { $0.contains("ready\n") }
    try tool.succeed("put", "k-end", "v")
    watch.wait { $0.hasSuffix("put\tk-end\n") }
    watch.signal(SIGINT)
    let result = watch.finish()
    #expect(result.code == 0, "\(result.err)")
    let events = result.lines.map { $0.split(separator: "\t").map(String.init) }
    let ready = try #require(events.firstIndex(of: ["ready"]))
    #expect(events[..<ready].allSatisfy { $0[0] == "present" })
    #expect(events[(ready + 1)...].allSatisfy { $0[0] == "put" })
    let keys = events.filter { $0.count == 2 }.map { $0[1] }
    #expect(keys.count == count + 1 && Set(keys).count == count + 1)
  }

  @Test("a gap is told by a line and on standard error; with --initial all keys follow")
  func gap() throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "a", "1")
    try tool.succeed("put", "kept", "1")
    let before = try position(tool.run("watch", "--from", "0", "--once"))
    try tool.succeed("delete", "a")
    try tool.succeed("put", "b", "1")
    let store = try Store.open(at: tool.store, configuration: Configuration(mode: .shared))
    #expect(try store.purge() == 1)
    try store.close()

    let gap = try tool.run("watch", "--from", before, "--once")
    #expect(gap.code == 0 && gap.text == "gap\n", "\(gap)")
    #expect(gap.err.contains("watch: changes were missed: deletes after the position are no longer kept: "))
    let other = try tool.run("watch", "--from", "9999", "--once", "--json")
    #expect(other.text.hasPrefix("{\"event\":\"gap\",\"position\":\""))
    #expect(other.err.contains("one of another copy"))

    let watch = try tool.start(["watch", "--from", before, "--initial"])
    watch.wait { $0.hasSuffix("ready\n") }
    watch.signal(SIGTERM)
    #expect(watch.finish().lines == ["gap", "present\tb", "present\tkept", "ready"])
  }

  @Test("a number of `log` begins with that record")
  func numbers() throws {
    let tool = try Scratch().store()
    for key in ["a", "b", "c"] { try tool.succeed("put", key, "x") }
    let log = try tool.succeed("log").lines.last ?? ""
    let number = try #require(log.split(separator: " ").first.map(String.init))
    #expect(try tool.run("watch", "--from", number, "--once").text == "put\tc\n")
    #expect(try tool.run("watch", "--from", "1", "--once").text == "put\ta\n")
  }

  @Test("a reader that has gone ends it with 0, also while nothing changes")
  func brokenPipe() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    for key in ["a", "b"] { try tool.succeed("put", key, "x") }
    let result = try scratch.shell(
      """
      export SYNC_STORE=store; $CLI watch --from 0 --quiet | head -n 1; echo "${PIPESTATUS[0]}"
      $CLI watch --quiet | true; echo "${PIPESTATUS[0]}"
      """)
    #expect(result.out == "put\ta\n0\n0\n", "\(result.out)")
  }

  @Test("a signal ends it although the reader of its lines has stopped reading")
  func stuckReader() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let lines = (0..<5000).map { "{\"key\":\"a key of some length \($0)\",\"value\":\"v\"}\n" }
    try tool.succeed("load", "-", input: Array(lines.joined().utf8))
    let result = try scratch.shell(
      """
      export SYNC_STORE=store; mkfifo pipe; exec 3<> pipe
      $CLI watch --from 0 --quiet > pipe & sleep 0.5; kill -TERM $!; kill -TERM $!; wait $!; echo $?
      """)
    #expect(result.out == "0\n", "\(result.out)")
  }

  @Test("--exec runs a command for each change, one at a time, with the change in its environment")
  func exec() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "n", "5", "--type", "int")
    try tool.succeed("put", "text", "-", input: [UInt8](repeating: 65, count: 300_000))
    try tool.succeed("delete", "n")
    let command = """
      echo "[$SYNC_EVENT $SYNC_KEY $SYNC_TYPE $(wc -c) $($CLI get text | wc -c)]"
      echo "$SYNC_POSITION" >> positions
      [ "$SYNC_EVENT $SYNC_KEY" != "put n" ] || exit 3
      """
    try scratch.write("run", Array(command.utf8))
    let result = try scratch.shell(
      """
      touch positions; $CLI --store store watch --from 0 --exec '. ./run' 2>&1 &
      until [ "$(wc -l < positions)" = 3 ]; do sleep 0.02; done; kill -TERM $!; wait $!; echo $?
      """)
    let lines = result.out.split(separator: "\n").map(String.init)
    #expect(lines.count == 9, "\(result.out)")
    #expect(lines.prefix(2) == ["put\tn", "[put n int 8 300000]"])
    #expect(
      lines[2]
        == "sync-cli: watch: CMD failed for the put of n: it ended with 3: the watch goes on with"
        + " the next change"
    )
    #expect(lines[3...5] == ["put\ttext", "[put text bytes 300000 300000]", "delete\tn"])
    #expect(lines[6] == "[delete n  0 300000]" && lines[8] == "0", "\(result.out)")
    #expect(lines[7].hasPrefix("sync-cli: watch: ended: go on with --from "))
  }

  @Test("a signal ends a command that runs, and its change is the next one")
  func stoppedCommand() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "a", "-", input: [UInt8](repeating: 65, count: 300_000))
    // It does not read its input, which is larger than a pipe.
    let watch = try tool.start(["watch", "--from", "0", "--exec", "echo began; exec sleep 100"])
    watch.wait { $0.contains("began") }
    watch.signal(SIGTERM)
    let result = watch.finish()
    #expect(result.code == 0 && result.err == "sync-cli: watch: ended: go on with --from :0:0\n", "\(result)")
    let absent = try tool.run("watch", "--from", "0", "--once", "--exec", "exec /nonexistent/program")
    #expect(absent.code == 0 && absent.err.contains("CMD failed for the put of a: it ended with 127"))
  }
}

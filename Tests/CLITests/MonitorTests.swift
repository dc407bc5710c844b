import Foundation
import SyncTestSupport
import Testing

@testable import sync_cli

/// A page as a client got it.
struct Page {
  let status: Int
  let head: String
  let body: String

  var json: [String: Any] {
    get throws { try #require(try JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any]) }
  }
}

extension Daemon {
  /// Where the pages are, by the log.
  var pages: String {
    get throws {
      let found = try #require(running.err.firstMatch(of: /status page on (\S+)/), "\(running.err)")
      return String(found.1)
    }
  }

  /// Gets a page over a plain connection, with a head of one's own after the request line.
  func page(_ path: String, fields: String = "Host: localhost\r\n", method: String = "GET") throws -> Page {
    let parts = try pages.split(separator: ":")
    let request = "\(method) \(path) HTTP/1.1\r\n\(fields)\r\n"
    let result = try ChildProcess.run(
      [
        "/bin/bash", "-c",
        "exec 3<>/dev/tcp/\(parts[0])/\(parts[1]); printf '%s' \"$REQUEST\" >&3; timeout 20 cat <&3",
      ], environment: ["PATH": "/usr/bin:/bin", "REQUEST": request])
    let text = result.text
    let halves = text.split(separator: "\r\n\r\n", maxSplits: 1, omittingEmptySubsequences: false)
    let status = try #require(text.firstMatch(of: /^HTTP\/1\.1 (\d+)/), "\(text)")
    return Page(
      status: try #require(Int(status.1)), head: String(halves[0]), body: String(halves.last ?? ""))
  }
}

/// `serve --http`: health, metrics and the status page of a running daemon.
@Suite struct MonitorTests {
  /// A member with a daemon, and another one that is in step with it.
  private func pair(_ more: [String] = []) throws -> (daemon: Daemon, beta: Tool) {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"), more: ["--http", "127.0.0.1:0"] + more)
    return (daemon, try daemon.join(scratch.tool("beta")))
  }

  @Test("without a setting nothing listens for HTTP")
  func off() throws {
    let daemon = try Daemon(Scratch().store("alpha"))
    #expect(!daemon.running.err.contains("status page"))
    try daemon.end()
  }

  @Test("health pages name each check, and say 503 with the command that helps")
  func health() throws {
    let scratch = try Scratch()
    let file = scratch.path + "/config.json"
    try Data(#"{"http": "127.0.0.1:0", "healthy_within_seconds": 3600}"#.utf8).write(
      to: URL(fileURLWithPath: file))
    let daemon = try Daemon(scratch.store("alpha"), more: ["--config", file])
    _ = try daemon.join(scratch.tool("beta"))
    #expect(try daemon.page("/livez").body == "ok\n")
    let good = try daemon.page("/healthz")
    #expect(
      good.status == 200 && good.body.hasSuffix("[+]members ok\nhealthz check passed\n"), "\(good.body)")
    #expect(try daemon.page("/status.json").json["log"] == nil)
    // The member does not come again; the new settings count at once.
    try Data(#"{"http": "127.0.0.1:0", "healthy_within_seconds": 1, "http_details": "always"}"#.utf8).write(
      to: URL(fileURLWithPath: file))
    daemon.running.signal(SIGHUP)
    var bad = good
    for _ in 0..<100 where bad.status == 200 {
      Thread.sleep(forTimeInterval: 0.1)
      bad = try daemon.page("/readyz")
    }
    #expect(bad.status == 503 && bad.body.hasSuffix("readyz check failed\n"))
    #expect(bad.body.contains("[-]members failed: no member was in step for "), "\(bad.body)")
    #expect(bad.body.contains("\"sync-cli sync MEMBER\" tries it now"))
    #expect(bad.body.contains("[+]writable ok\n"))
    #expect(try daemon.page("/status.json").json["log"] != nil)
    try daemon.end()
  }

  @Test("metrics are in Prometheus' format, each described once, with what was done")
  func metrics() throws {
    let (daemon, beta) = try pair()
    let place = daemon.tool.scratch.path + "/stick"
    try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
    try daemon.tool.succeed("peer", "add", "stick", "dir:" + place)
    for index in 0..<20 { try beta.succeed("put", "k\(index)", "v") }
    try beta.succeed("push", "alpha")
    var page = try daemon.page("/metrics")
    // The keys are counted in the background.
    for _ in 0..<200
    where !page.body.contains("syncstore_keys ") || !page.body.contains("syncstore_relay_last_success") {
      Thread.sleep(forTimeInterval: 0.1)
      page = try daemon.page("/metrics")
    }
    #expect(page.status == 200 && page.head.contains("Content-Type: text/plain; version=0.0.4"))
    let lines = page.body.split(separator: "\n").map(String.init)
    let types = lines.filter { $0.hasPrefix("# TYPE ") }
    #expect(Set(types).count == types.count && types.count > 40)
    for line in lines where !line.hasPrefix("#") {
      #expect(
        line.wholeMatch(of: /[a-z_]+(\{[a-z]+=".*"(,[a-z]+=".*")*\})? [0-9.e+-]+|.*_bucket\{.*/) != nil,
        "\(line)")
    }
    #expect(lines.contains("syncstore_member_received_records_total{member=\"beta\"} 20"), "\(page.body)")
    #expect(lines.contains("syncstore_member_in_step{member=\"beta\"} 1"))
    #expect(
      lines.contains { $0.hasPrefix("syncstore_sessions_total{direction=\"accepted\",result=\"done\"} ") })
    #expect(lines.contains("syncstore_check_passes{check=\"writable\"} 1"))
    // Every family of the table has a sample, but those of peers, of members that lack something, and of a
    // relay that was not collected yet.
    let rare = ["member_oldest_unsent_timestamp_seconds", "relay_last_collection_timestamp_seconds"]
    for family in MetricFamily.all where family.labels != ["peer"] && !rare.contains(family.name) {
      let name = MetricFamily.fullName(of: family.name)
      #expect(page.body.contains("# TYPE \(name) \(family.kind.rawValue)\n"), "\(name)")
    }
    try daemon.end()
  }

  @Test("the status page's JSON names the members and what they lack")
  func status() throws {
    let scratch = try Scratch()
    let file = scratch.path + "/config.json"
    try Data(#"{"http_details": "always"}"#.utf8).write(to: URL(fileURLWithPath: file))
    let daemon = try Daemon(scratch.store("alpha"), more: ["--http", "127.0.0.1:0", "--config", file])
    _ = try daemon.join(scratch.tool("beta"))
    try daemon.tool.succeed("put", "a key", "v")
    let page = try daemon.page("/status.json")
    // Each member is declared, and each declared one is there or may be absent.
    _ = try JSONReference.statusPage[0].match(JSONParser.parse(Array(page.body.utf8))).get()
    let json = try page.json
    #expect(json["verdict"] as? String == "Not in step: beta lacks 1 key.")
    let member = try #require((json["members"] as? [[String: Any]])?.first)
    #expect(member["name"] as? String == "beta" && member["lacking"] as? Int == 1)
    #expect(member["first_lacking"] as? [String] == ["a key"])
    #expect((json["log"] as? [[String: Any]])?.isEmpty == false)
    #expect((json["configuration"] as? [String: Any])?["http"] as? String == "127.0.0.1:0")
    try daemon.end()
  }

  @Test("the status page's JSON shows each relay, and one that cannot be reached with the reason")
  func relays() throws {
    let scratch = try Scratch()
    let file = scratch.path + "/config.json"
    try Data(#"{"publish_seconds": 1, "poll_seconds": 1, "retry_seconds": 1}"#.utf8).write(
      to: URL(fileURLWithPath: file))
    let daemon = try Daemon(scratch.store("alpha"), more: ["--http", "127.0.0.1:0", "--config", file])
    #expect(try (daemon.page("/status.json").json["relays"] as? [Any])?.isEmpty == true)
    let beta = try daemon.join(scratch.tool("beta"))
    let place = scratch.path + "/<b>stick"
    try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
    try beta.succeed("peer", "add", "stick", "dir:" + place)
    try beta.succeed("put", "a", "one")
    try beta.succeed("push", "stick")
    try daemon.tool.succeed("peer", "add", "stick", "dir:" + place)
    /// The relay as it is once `isSo`.
    func relay(_ isSo: ([String: Any]) -> Bool) throws -> [String: Any] {
      while true {
        try Task.checkCancellation()
        let page = try daemon.page("/status.json")
        _ = try JSONReference.statusPage[0].match(JSONParser.parse(Array(page.body.utf8))).get()
        if let relay = try (page.json["relays"] as? [[String: Any]])?.first, isSo(relay) { return relay }
        Thread.sleep(forTimeInterval: 0.1)
      }
    }
    let read = try relay { $0["received_records"] as? Int == 1 && $0["usage"] != nil }
    #expect(read["name"] as? String == "stick" && read["location"] as? String == "dir:" + place)
    #expect(read["last_error"] == nil && read["last_success_ms"] != nil && read["last_news_ms"] != nil)
    #expect(read["requests"] as? Int ?? 0 > 0 && read["received_bytes"] as? Int ?? 0 > 0)
    #expect(read["waiting_entries"] as? Int == 0 && read["set_aside"] as? Int == 0)
    #expect(read["cost"] == nil, "a directory costs nothing")
    try daemon.tool.succeed("relay", "gc", "stick")
    _ = try relay { $0["last_collection_ms"] != nil }
    try FileManager.default.moveItem(atPath: place, toPath: place + "-away")
    let lost = try relay { $0["last_error"] != nil }
    #expect((lost["last_error"] as? String)?.contains(": mount it") == true)
    #expect(lost["failures"] as? Int ?? 0 > 0 && lost["last_success_ms"] != nil)
    try daemon.end()
  }

  @Test("keys, and the log that can name them, are not shown to all users of the machine")
  func details() throws {
    let (daemon, _) = try pair()
    try daemon.tool.succeed("put", "a key", "v")
    let page = try daemon.page("/status.json")
    _ = try JSONReference.statusPage[0].match(JSONParser.parse(Array(page.body.utf8))).get()
    #expect(page.body.contains("\"lacking\":1") && !page.body.contains("a key"), "\(page.body)")
    #expect(try page.json["log"] == nil)
    try daemon.end()
  }

  @Test("a member that only others meet is not counted as late")
  func indirect() throws {
    let scratch = try Scratch()
    let hub = try Daemon(scratch.store("hub"))
    let edge = try hub.join(scratch.tool("edge"))
    _ = try hub.join(scratch.tool("other"))
    try edge.succeed("sync", "hub")
    try hub.end()
    let daemon = try Daemon(edge, more: ["--http", "127.0.0.1:0"])
    try edge.succeed("put", "k", "v")
    #expect(try daemon.page("/status.json").json["verdict"] as? String == "Not in step: hub lacks 1 key.")
    let metrics = try daemon.page("/metrics").body
    #expect(metrics.contains("syncstore_member_unsent_records{member=\"hub\"} 1\n"))
    #expect(!metrics.contains("unsent_records{member=\"other\"}"), "\(metrics)")
    #expect(metrics.contains("syncstore_member_connected{member=\"other\"} 0\n"))
    try daemon.end()
  }

  @Test("the status page is one document that allows no other script")
  func page() throws {
    let (daemon, _) = try pair()
    let page = try daemon.page("/")
    #expect(page.status == 200 && page.head.contains("Content-Type: text/html"))
    #expect(page.head.contains("script-src 'sha256-") && page.head.contains("default-src 'none'"))
    #expect(!page.body.contains("http://") || page.body.contains("http://www.w3.org/2000/svg"))
    #expect(page.body.contains("prefers-color-scheme:dark") && page.body.hasSuffix("</html>\n"))
    try daemon.end()
  }

  @Test("another site's name, a change and an unknown page are refused")
  func refused() throws {
    let (daemon, _) = try pair()
    #expect(try daemon.page("/metrics", fields: "Host: evil.example\r\n").status == 403)
    for host in ["127.0.0.1:1", "[::1]", "192.0.2.1:9", "LOCALHOST:"] {
      #expect(try daemon.page("/metrics", fields: "Host: \(host)\r\n").status == 200, "\(host)")
    }
    #expect(try daemon.page("/metrics", method: "POST").status == 405)
    #expect(try daemon.page("/metrics", fields: "").status == 400)
    #expect(try daemon.page("/x").status == 404)
    let head = try daemon.page("/livez", method: "HEAD")
    #expect(head.status == 200 && head.body.isEmpty && head.head.contains("Content-Length: 3"))
    try daemon.end()
  }

  @Test("more clients than it serves at a time are turned away, and silent ones are given up")
  func bounded() throws {
    let (daemon, _) = try pair()
    let parts = try daemon.pages.split(separator: ":")
    // Silent clients take all places; the next one is refused at once.
    let result = try ChildProcess.run(
      [
        "/bin/bash", "-c",
        """
        for n in $(seq 4 35); do eval "exec $n<>/dev/tcp/\(parts[0])/\(parts[1])"; done; sleep 0.5
        exec 3<>/dev/tcp/\(parts[0])/\(parts[1]); timeout 20 cat <&3; echo refused $?
        timeout 30 cat <&4 | head -1
        """,
      ], environment: ["PATH": "/usr/bin:/bin"])
    let text = result.text
    #expect(text.contains("refused 0\n") && text.contains("HTTP/1.1 408 Request Timeout"), "\(text)")
    #expect(try daemon.page("/livez").status == 200)
    try daemon.end()
  }

  @Test("a Unix socket serves the pages, is taken over from a daemon that was killed, and goes with it")
  func unixSocket() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let path = scratch.path + "/pages.sock"
    let killed = try Daemon(alpha, more: ["--http", "unix:\(path)"])
    killed.running.signal(SIGKILL)
    _ = killed.running.finish()
    #expect(FileManager.default.fileExists(atPath: path))
    let daemon = try Daemon(alpha, more: ["--http", "unix:\(path)"])
    #expect(try daemon.pages == "unix:\(path)")
    let second = try alpha.scratch.store("other").start([
      "serve", "--listen", "127.0.0.1:0", "--http", "unix:\(path)",
    ])
    .finish()
    #expect(second.code == 4 && second.err.contains("another process does"), "\(second.code) \(second.err)")
    try daemon.end()
    #expect(!FileManager.default.fileExists(atPath: path))
  }
}

/// The table of metrics, and the files of the operator that name them.
@Suite struct MetricFamilyTests {
  @Test("names follow Prometheus' conventions, and none stands twice")
  func names() {
    let names = MetricFamily.all.map(\.name)
    #expect(Set(names).count == names.count)
    for family in MetricFamily.all {
      #expect(family.name.wholeMatch(of: /[a-z][a-z_]*[a-z]/) != nil && family.help.hasSuffix("."))
      #expect((family.kind == .counter) == family.name.hasSuffix("_total"), "\(family.name)")
    }
  }

  @Test(
    "each metric that an alert or the dashboard names exists",
    arguments: [
      "packaging/prometheus/syncstore.rules.yml", "packaging/prometheus/syncstore.rules.test.yml",
      "packaging/grafana/syncstore.json",
    ])
  func named(path: String) throws {
    let known = Set(MetricFamily.all.map { MetricFamily.fullName(of: $0.name) })
    let text = try String(contentsOf: Checkout.url(path), encoding: .utf8)
    let named = Set(text.matches(of: /\b(?:syncstore|process)_[a-z_]+/).map { String($0.output) })
    #expect(named.count > 5)
    for name in named {
      let family = name.replacing(/_(bucket|sum|count)$/, with: "")
      #expect(known.contains(name) || known.contains(family), "\(path): \(name)")
    }
  }

  @Test("labels hold any name of a member")
  func labels() {
    var page = MetricsPage()
    page.add("member_in_step", 1, labels: [("member", "a\"b\\c\nd é")])
    #expect(page.text.hasSuffix("syncstore_member_in_step{member=\"a\\\"b\\\\c\\nd é\"} 1\n"))
  }
}

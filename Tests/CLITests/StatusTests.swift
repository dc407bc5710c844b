import Foundation
import Testing

/// `status --check` and `status --watch`, and colours of errors.
@Suite struct StatusTests {
  @Test("--check says ok with 0, and names damage with 1")
  func damage() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "k", "some value to be damaged")
    #expect(try tool.succeed("status", "--check").text == "ok\n")
    #expect(try tool.succeed("status", "--check", "--quiet").out.isEmpty)
    #expect(try tool.succeed("status", "--check", "--json").text == #"{"ok":true,"problems":[]}"# + "\n")
    _ = try scratch.shell(
      """
      segment=$(grep -l 'to be damaged' store/journal/* | head -1)
      offset=$(grep -abo 'to be damaged' $segment | head -1 | cut -d: -f1)
      printf X | dd of=$segment bs=1 seek=$offset conv=notrunc status=none
      """)
    let result = try tool.run("status", "--check")
    #expect(
      result.code == 1 && result.text.contains("damaged: 1 place: see \"sync-cli verify\""), "\(result.text)")
    #expect(
      try tool.run("status", "--check", "--json").text.hasPrefix(
        #"{"ok":false,"problems":[{"name":"damaged""#))
  }

  @Test(
    "--check names a member that was never met, and one that lags longer than allowed",
    .timeLimit(.minutes(1)))
  func members() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    try daemon.end()
    #expect(try beta.succeed("status", "--check").text == "ok\n")
    try beta.succeed("put", "late", "v")
    Thread.sleep(forTimeInterval: 0.2)
    let late = try beta.run("status", "--check", "--max-lag", "100ms")
    #expect(
      late.code == 1 && late.text.contains("lag: alpha lacks 1 key for up to "), "\(late.text) \(late.err)")
    #expect(try beta.run("status", "--check", "--max-lag", "1h").code == 0)
  }

  @Test(
    "options of --check and --watch need them",
    arguments: [["--max-lag", "1h"], ["--interval", "1s"], ["--check", "--watch"]])
  func contradictions(words: [String]) throws {
    #expect(try Scratch().store().start(["status"] + words).finish().code == 2)
  }

  @Test("--watch repeats until a signal, which ends it with 0", .timeLimit(.minutes(1)))
  func watching() throws {
    let tool = try Scratch().store()
    let running = try tool.start(["status", "--watch", "--interval", "10ms", "--json"])
    _ = running.firstLine()
    try tool.succeed("put", "k", "v")
    while running.isRunning, !String(decoding: running.out, as: UTF8.self).contains(#""keys":1,"#) {
      Thread.sleep(forTimeInterval: 0.02)
    }
    running.signal(SIGTERM)
    let result = running.finish()
    #expect(result.code == 0 && result.lines.count > 1 && result.err.isEmpty)
  }

  @Test("--watch renews the screen of a terminal", .timeLimit(.minutes(1)))
  func screen() throws {
    let scratch = try Scratch()
    _ = try scratch.store()
    let result = try scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh; touch screen
      script -qefc 'echo $$ > pid; exec '$CLI' status --watch --interval 10ms' screen < /dev/null > /dev/null & run=$!
      until [ $(grep -c 'keys       0' screen) -ge 3 ]; do sleep 0.02; done
      kill -INT $(cat pid); wait $run; echo $?; grep -c $'\\e\\[H\\e\\[J' screen
      """)
    #expect(result.out.hasPrefix("0\n") && !result.out.hasSuffix("\n0\n"), "\(result.out)")
  }

  @Test(
    "an error is red on a terminal with colours, and only there",
    arguments: [
      ("TERM=xterm", true), ("TERM=xterm NO_COLOR=1", false), ("TERM=xterm NO_COLOR=", true),
      ("TERM=dumb", false), ("", false),
    ])
  func colours(variables: String, isRed: Bool) throws {
    let scratch = try Scratch()
    _ = try scratch.store()
    let result = try scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh
      env -u TERM -u NO_COLOR \(variables) script -qec "$CLI get absent" /dev/null < /dev/null
      TERM=xterm $CLI get absent 2>&1
      """)
    let lines = result.out.split { $0 == "\n" || $0 == "\r\n" }
    #expect(lines.count == 2, "\(lines)")
    #expect(
      lines[0].hasPrefix(isRed ? "\u{1B}[31msync-cli:\u{1B}[0m get absent: " : "sync-cli: get absent: "),
      "\(lines)")
    #expect(lines[1].hasPrefix("sync-cli: get absent: "))
  }
}

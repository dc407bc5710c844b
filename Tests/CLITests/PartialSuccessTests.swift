import Foundation
import SyncStore
import Testing

@testable import sync_cli

/// Commands over many items process all they can, name those that failed, and exit with the code of the worst
/// failure.
@Suite("sync-cli: partial success") struct PartialSuccessTests {
  /// Input of `load` with one value for each key.
  private static func lines(_ keys: [String]) -> [UInt8] {
    Array(keys.map { "{\"key\":\"\($0)\",\"value\":\"v\"}" }.joined(separator: "\n").utf8)
  }

  @Test("import stores readable files and names the unreadable ones; strict import stores nothing")
  func unreadableFiles() throws {
    let scratch = try Scratch()
    // Root can read every file, so run as another user.
    let result = try scratch.shell(
      """
      chmod 777 .; export SYNC_STORE=store
      as() { if [ $(id -u) = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
      as bash -c 'umask 022; $CLI init --quiet && mkdir -p tree/closed && for i in $(seq 50); do echo $i > tree/f$i; done
        echo no > tree/f7; chmod 0 tree/f7; echo no > tree/closed/f; chmod 0 tree/closed; head -c 30000 /dev/zero > tree/large
        $CLI import tree --strict --quiet; echo strict $? $($CLI list | wc -l)
        $CLI import tree; echo default $? $($CLI list | wc -l); chmod 755 tree/closed' 2>&1
      """)
    #expect(result.out.contains("strict 7 0\n"), "\(result.out)")
    #expect(result.out.contains("imported 50 files, "), "\(result.out)")
    #expect(result.out.contains("default 7 50\n"), "\(result.out)")
    #expect(result.out.contains("cannot open tree/f7: Permission denied: check owner and permissions"))
    #expect(result.out.contains("cannot enter tree/closed: Permission denied"), "\(result.out)")
    #expect(result.out.contains("import: not all was done: 2 failures, named above"), "\(result.out)")
  }

  @Test("import skips a file name that cannot be a key; strict import stores nothing")
  func longNames() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let part = String(repeating: "n", count: 200)
    try scratch.write("tree/a", [1])
    try scratch.write("tree/" + [String](repeating: part, count: 6).joined(separator: "/"), [2])
    try scratch.write("tree/z", [3])
    let strict = try tool.run("import", scratch.path + "/tree", "--strict")
    #expect(strict.code == 2 && strict.err.contains(part))
    #expect(try tool.succeed("list").lines.isEmpty)
    let result = try tool.run("import", scratch.path + "/tree", "--json")
    #expect(result.code == 2 && result.err.contains(part), "\(result.err)")
    #expect(result.text.contains("\"files\":2,") && result.text.contains("\"failed\":1"), "\(result.text)")
    #expect(try tool.succeed("list").lines == ["a", "z"])
  }

  @Test("export skips keys that cannot be file names, and those that a directory blocks")
  func exporting() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("load", "-", input: Self.lines(["../up", "a", "d/f", "taken", "x", "x/y", "z"]))
    try tool.succeed("put", "large", "-", input: [UInt8](repeating: 3, count: 100_000))
    try scratch.write("out/taken/by/a/directory", [1])
    try scratch.write("out/large/by/a/directory", [1])
    let result = try tool.run("export", scratch.path + "/out")
    #expect(result.code == 7, "\(result.err)")
    for (key, why) in [
      ("../up", "\"..\" is a part of it"), ("x/y", "\"x\" is a key, too"),
      ("taken", "a directory is where the file belongs"), ("large", "a directory is where the file belongs"),
    ] {
      let line = try #require(
        result.err.split(separator: "\n").first { $0.hasPrefix("sync-cli: export \(key): ") }, "\(result.err)"
      )
      #expect(line.contains(why) && line.split(separator: ": ").count >= 4, "\(line)")
    }
    #expect(result.err.contains("4 failures, named above"), "\(result.err)")
    #expect(result.text.hasPrefix("exported 4 files"), "\(result.text)")
    #expect(
      try scratch.shell("cd out; cat a d/f x z; ls -A .. | sort; find . -name '.sync*'").out
        == "vvvvout\nstore\n")
    let strict = try tool.run("export", scratch.path + "/strict", "--strict")
    #expect(strict.code == 3 && strict.err.contains("../up"), "\(strict.err)")
    #expect(try scratch.shell("ls strict").code != 0)
  }

  @Test("an export without enough space names the files by their final names")
  func limitedFiles() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "a", "small")
    try tool.succeed("put", "large", "-", input: [UInt8](repeating: 3, count: 100_000))
    try tool.succeed("put", "middle", "-", input: [UInt8](repeating: 3, count: 15_000))
    let result = try scratch.shell("(ulimit -f 8; $CLI --store store export out 2>&1); echo $?; cat out/a")
    #expect(result.out.contains("\n7\nsmall"), "\(result.out)")
    for key in ["large", "middle"] {
      #expect(result.out.contains("export \(key): ") && result.out.contains("out/\(key)"), "\(result.out)")
    }
    #expect(!result.out.contains(".sync-cli") && !result.out.contains(".part"), "\(result.out)")
  }

  @Test("load skips invalid lines, and names unknown members", arguments: [false, true])
  func loading(strict: Bool) throws {
    let tool = try Scratch().store()
    let text = """
      {"key":"a","value":"v"}
      {"key":"b","value":"v","expire":4102444800000}
      {"key":"c","value":"v","type":7}
      {"key":"d","value":"v"}
      """
    let result = try tool.start(
      ["load", "-", "--json"] + (strict ? ["--strict"] : []), input: Array(text.utf8)
    ).finish()
    #expect(result.code == 2)
    #expect(
      result.err.contains("load -, line 2: \"expire\" is no member of a line, \"expires\" is: mend the line"),
      "\(result.err)")
    #expect(result.err.contains("line 3: \"type\" is no text: ") != strict, "\(result.err)")
    #expect(result.err.contains("(1 line before it stored)") == strict, "\(result.err)")
    #expect(try tool.succeed("list").lines == (strict ? ["a"] : ["a", "d"]))
  }

  @Test("an overlong line is skipped, wherever it ends")
  func longLines() throws {
    let pipe = Pipe()
    var reader = LineReader(
      try Descriptor.reading(Array("/dev/fd/\(pipe.fileHandleForReading.fileDescriptor)".utf8)),
      limit: 3 << 20)
    let long = [UInt8](repeating: 65, count: 1 << 20)
    let writer = Thread {
      pipe.fileHandleForWriting.write(Data("first\n".utf8))
      for _ in 0...3 { pipe.fileHandleForWriting.write(Data(long)) }
      pipe.fileHandleForWriting.write(Data("tail\nnext\n".utf8))
      try? pipe.fileHandleForWriting.close()
    }
    writer.start()
    let lines = [try reader.next(), try reader.next(), try reader.next(), try reader.next()]
    #expect(lines == [.text(Array("first".utf8)), .tooLong, .text(Array("next".utf8)), nil])
    #expect(reader.number == 3)
  }

  @Test("delete names each absent key; strict delete removes all or none")
  func deleting() throws {
    let tool = try Scratch().store()
    try tool.succeed("load", "-", input: Self.lines(["a", "b", "c"]))
    let strict = try tool.run("delete", "--strict", "a", "no", "b")
    #expect(strict.code == 1 && strict.err.contains("delete no: there is no such key: "), "\(strict.err)")
    #expect(try tool.succeed("list").lines == ["a", "b", "c"])
    let long = String(repeating: "n", count: 2000)
    let result = try tool.run("delete", "a", "no", long, "neither", "b")
    #expect(result.code == 2, "the worst of 1 and 2: \(result.err)")
    for key in ["no", "neither", long] { #expect(result.err.contains("delete \(key): "), "\(result.err)") }
    #expect(try tool.succeed("list").lines == ["c"])
  }

  @Test("sync contacts all named peers, and ends with the code of the worst failure")
  func peers() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    try beta.succeed("put", "k", "v")
    let strict = try beta.run("push", "--strict", "127.0.0.1:1", "alpha")
    #expect(strict.code == 4 && strict.text.isEmpty, "\(strict.err)")
    let result = try beta.run("push", "127.0.0.1:1", "nosuch", "alpha")
    #expect(result.text.hasPrefix("alpha: sent 1 record, "), "\(result.text)")
    #expect(
      result.err.contains("push 127.0.0.1:1: ") && result.err.contains("push nosuch: "), "\(result.err)")
    #expect(
      result.err.contains("2 failures, named above") && result.code == 3, "\(result.code) \(result.err)")
    #expect(try daemon.tool.succeed("get", "k").text == "v")
    let none = try beta.run("sync")
    #expect(none.code == 2 && none.err.contains("PEER is missing"))
    try daemon.end()
  }

  @Test("the worst failure decides the exit code, and failures beyond the bound are counted")
  func worst() throws {
    #expect(
      [.bug, .damaged, .inputOutput, .newerFormat, .refused, .network, .busy, .usage, .notFound, .done]
        .map(\ExitCode.severity) == Array((0...9).reversed()))
    var failures = ItemFailures(command: "export")
    #expect(throws: Never.self) { try failures.check() }
    for code in [.network, .damaged, .notFound] as [ExitCode] {
      try failures.record(Failure(code, "export k: why: what to do"))
    }
    let failure = try #require(throws: Failure.self) { try failures.check() }
    #expect(failure.code == .damaged && failure.message.contains("3 failures, named above"))
    // A broken pipe ends the command.
    #expect(throws: Failure.self) { try failures.record(Failure(.inputOutput, "", cause: .brokenPipe)) }
  }
}

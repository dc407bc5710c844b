import Foundation
import SyncTestSupport
import Testing

/// Limits, signals and failures that the machine imposes on a running program.
@Suite("The program on a failing machine")
struct FaultTests {
  @Test("F35 exceeding the file size limit is a write error, not death by a signal")
  func fileSizeLimit() throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    try scratch.write("large", [UInt8](repeating: 7, count: 3 << 20))
    let lines = (0..<4000).map { "{\"key\":\"k\($0)\",\"value\":\"\(String(repeating: "v", count: 1000))\"}" }
    try scratch.write("lines", Array(lines.joined(separator: "\n").utf8))
    // Units of 1024 bytes. Segments become small enough for the limit.
    let loaded = try scratch.shell("ulimit -f 1024; $CLI --store store load lines")
    #expect(loaded.code == 0, "\(loaded.out)")
    let blob = try scratch.shell("ulimit -f 1024; $CLI --store store put blob --file large")
    #expect(blob.code == 7)
    #expect(blob.out.contains("File too large"))
    #expect(blob.out.contains("ulimit -f"))
    // A sanitizer creates files of its own before the program starts.
    if !Sanitizer.isActive {
      let tiny = try scratch.shell("ulimit -f 4; $CLI --store other init; echo $?")
      #expect(tiny.out.contains("File too large"))
      #expect(tiny.out.hasSuffix("\n7\n"))
    }
    #expect(try store.succeed("get", "k3999").out.count == 1000)
    #expect(try store.succeed("verify").text.contains("all whole"))
    try store.succeed("put", "blob", "--file", scratch.path + "/large")
  }

  @Test("F33 without file descriptors the error says which limit to raise, and the store is unharmed")
  func descriptors() throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    try store.succeed("put", "k", "v")
    let refused = try scratch.shell("ulimit -n 5; $CLI --store store put k w")
    #expect(refused.code == 7, "\(refused.out)")
    #expect(refused.out.contains("ulimit -n"))
    #expect(try store.succeed("get", "k").text == "v")
    #expect(try store.succeed("verify").text.contains("all whole"))
  }

  @Test("F98 an option of every command forces the use of a network file system")
  func forced() throws {
    let store = try Scratch().store()
    try store.succeed("--force-network", "put", "k", "v")
    #expect(try store.succeed("get", "k", "--force-network").text == "v")
  }

  @Test("F14 a writer that was suspended for long writes nothing based on stale state when it resumes")
  func stopped() throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    let count = 60_000
    for round in 0..<3 {
      let lines = (0..<count).map { "{\"key\":\"r\(round)-\($0)\",\"value\":\"v\"}" }
      try scratch.write("lines\(round)", Array(lines.joined(separator: "\n").utf8))
      let loading = try store.start(["load", scratch.path + "/lines\(round)"])
      try #require(try Self.wait(for: "r\(round)-\(4000 * round)", in: store, from: loading))
      loading.signal(SIGSTOP)
      // The load is stopped in the middle of its work.
      try #require(Self.isStopped(loading), "round \(round)")
      // If it was stopped while it held the lock, these writers wait for it.
      let others = try (0..<3).map { try store.start(["put", "o\(round)-\($0)", "x"]) }
      Thread.sleep(forTimeInterval: 0.3)
      loading.signal(SIGCONT)
      #expect(loading.finish().code == 0)
      for other in others { #expect(other.finish().code == 0) }
    }
    #expect(try store.succeed("list").lines.count == 3 * (count + 3))
    #expect(try store.succeed("verify").text.contains("all whole"))
  }

  @Test("F91 a killed load keeps whole lines, and continues when it is run again")
  func killedLoad() throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    let count = 150_000
    let keys = (0..<count).map { "k\(1_000_000 + $0)" }
    let lines = keys.map { "{\"key\":\"\($0)\",\"value\":\"of \($0)\"}" }
    try scratch.write("lines", Array(lines.joined(separator: "\n").utf8))
    var found = 0
    for attempt in 0..<3 {
      let loading = try store.start(["load", scratch.path + "/lines"])
      let isUnderWay = try Self.wait(for: keys[attempt * 20_000], in: store, from: loading)
      // As the kernel's out-of-memory killer does.
      loading.signal(SIGKILL)
      #expect(loading.finish().code == 128 + SIGKILL)
      #expect(isUnderWay)
      #expect(try store.succeed("verify").text.contains("all whole"))
      // A prefix of the lines, each whole, with no gap.
      let listed = try store.succeed("list").lines
      #expect(listed == Array(keys.prefix(listed.count)), "attempt \(attempt)")
      #expect(listed.count > attempt * 20_000 && listed.count < count && listed.count >= found)
      #expect(try store.succeed("get", keys[listed.count - 1]).text == "of \(keys[listed.count - 1])")
      found = listed.count
    }
    try store.succeed("load", scratch.path + "/lines")
    #expect(try store.succeed("list").lines.count == count)
    #expect(try store.succeed("get", keys[count - 1]).text == "of \(keys[count - 1])")
  }

  /// Waits until a running process has put `key`. False if the process ended first.
  private static func wait(for key: String, in store: Tool, from process: Running) throws -> Bool {
    while process.isRunning {
      if try store.run("get", key).code == 0 { return process.isRunning }
    }
    return false
  }

  /// Waits until the process is stopped; false if it ends instead.
  private static func isStopped(_ process: Running) -> Bool {
    let path = "/proc/\(process.processID)/stat"
    for _ in 0..<1000 {
      // The state follows the name, which is in brackets.
      guard let text = try? String(contentsOfFile: path, encoding: .utf8),
        let state = text.split(separator: ")").last?.split(separator: " ").first
      else { return false }
      if state == "T" { return true }
      if state == "Z" || state == "X" { return false }
      Thread.sleep(forTimeInterval: 0.005)
    }
    return false
  }

  @Test("F30 a daemon whose store is poisoned by a failed sync ends, so that it is restarted")
  func poisoned() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    try alpha.succeed("put", "k", "v")
    let daemon = try Daemon(alpha)
    try Self.poison(alpha)
    let end = daemon.running.finish()
    #expect(end.code == 7)
    #expect(end.err.contains("a sync failed"))
    try alpha.succeed("put", "k", "again")
    let again = try Daemon(alpha)
    try again.end()
  }

  @Test("F38 truncating segments under a running daemon causes errors and does not end it")
  func cutShort() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    for number in 0..<20 { try alpha.succeed("put", "k\(number)", String(repeating: "v", count: 5000)) }
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    let segment = alpha.store + "/journal/0000000000000001.segment"
    let handle = try FileHandle(forUpdating: URL(fileURLWithPath: segment))
    // After the session with beta the daemon records it. A write into the missing part would poison the store.
    var content = Data()
    while case let now = try Data(contentsOf: URL(fileURLWithPath: segment)), now != content {
      content = now
      Thread.sleep(forTimeInterval: 0.5)
    }
    try handle.truncate(atOffset: 8192)
    try beta.succeed("put", "new", "x")
    let result = try beta.run("sync", "alpha")
    #expect(result.code != 0)
    #expect(daemon.running.isRunning)
    #expect(try alpha.run("get", "k15").code == 5)
    daemon.running.signal(SIGTERM)
    let end = daemon.running.finish()
    #expect(end.code < 128, "\(end.err)")
  }

  @Test(
    "F17 damage that no peer can repair is reported, and no values are reported as pending",
    arguments: [("--json", "{\"clean\":false,", 1), ("--verbose", "", 2)])
  func alone(word: String, begins: String, lines: Int) throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    try store.succeed("put", "blob", "-", input: [UInt8](repeating: 5, count: 300_000))
    let flipped = try scratch.shell(
      """
      blob=$(find store/blobs/packs -type f | head -1); chmod u+w $blob
      printf X | dd of=$blob bs=1 seek=20000 conv=notrunc status=none
      """)
    #expect(flipped.code == 0, "\(flipped.out)")
    let told = try store.run("verify", "--repair", word)
    #expect(told.code == 5 && told.err.contains("no peer to fetch from"), "\(told.err)")
    #expect(told.text.hasPrefix(begins) && told.lines.count == lines, "\(told.text)")
    // The damaged blob has been set aside.
    #expect(try store.succeed("verify").text.contains("still to come: all whole"))
    let waiting = try store.run("verify", "--repair")
    #expect(waiting.code == 0 && waiting.text.contains("still to come: all whole"), "\(waiting.text)")
    #expect(waiting.err.contains("no peer to fetch from"))
  }

  @Test("F30 a daemon that cannot apply a new configuration keeps all of the old one")
  func reload() throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    try scratch.write("config", Array("{}".utf8))
    let daemon = try store.start(["serve", "--listen", "127.0.0.1:0", "--config", scratch.path + "/config"])
    _ = daemon.firstLine()
    try scratch.write("config", Array("{\"log\":\"json\",\"blobs\":{\"take\":\"lazy\"}}".utf8))
    try Self.poison(store)
    daemon.signal(SIGHUP)
    while daemon.isRunning, !daemon.err.contains("configuration ") {
      Thread.sleep(forTimeInterval: 0.01)
    }
    daemon.signal(SIGTERM)
    let log = daemon.finish().err
    #expect(log.contains("\n<3>configuration kept as it was: "), "\(log)")
    #expect(!log.contains("{\"time\""), "\(log)")
  }

  /// Sets the poison flag, as another process does after a failed sync.
  private static func poison(_ store: Tool) throws {
    let control = try FileHandle(forUpdating: URL(fileURLWithPath: store.store + "/control"))
    try control.seek(toOffset: 16)
    try control.write(contentsOf: Data([0x11, 0xAD, 0x5B, 0xE1, 0x0D, 0xEC, 0x0D, 0x9E]))
  }
}

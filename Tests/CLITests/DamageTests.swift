import Foundation
import SyncTestSupport
import Testing

/// Keys with a flipped byte on the disk: the readable rest is output, and the exit code says that it is
/// incomplete.
@Suite("Damaged keys, on the command line (F17, F37)", .timeLimit(.minutes(Patience.minutes(2))))
struct DamageTests {
  /// A store with k1, k2 and k3, each written twice, with a changed byte in k2's value. No process has read
  /// it since.
  private static func damaged() throws -> Tool {
    let scratch = try Scratch()
    let store = try scratch.store()
    let lines = ["old", "new"].flatMap { word in
      (1...3).map { "{\"key\":\"k\($0)\",\"value\":\"\(word) \($0)\",\"type\":\"string\"}" }
    }
    for half in [lines.prefix(3), lines.suffix(3)] {
      try store.succeed("load", "-", input: Array(half.joined(separator: "\n").utf8))
    }
    let flipped = try scratch.shell(
      """
      at=$(grep -abo 'new 2' store/journal/0000000000000001.segment | head -1 | cut -d: -f1)
      printf X | dd of=store/journal/0000000000000001.segment bs=1 seek=$at conv=notrunc status=none
      """)
    #expect(flipped.code == 0, "\(flipped.out)")
    return store
  }

  @Test("list, dump and export name damaged keys, output all the others and end with 5")
  func partial() throws {
    let store = try Self.damaged()
    let directory = store.scratch.path + "/out"
    for (words, given) in [
      (["list"], "k1\nk3\n"), (["list", "--limit", "1"], "k1\n"), (["list", "--after", "k2"], "k3\n"),
      (
        ["dump"],
        "{\"key\":\"k1\",\"value\":\"new 1\",\"type\":\"string\"}\n{\"key\":\"k3\",\"value\":\"new 3\",\"type\":\"string\"}\n"
      ),
      (["export", directory, "--quiet"], ""),
    ] {
      let result = try store.start(words).finish()
      let isAll = words.contains("--limit") || words.contains("--after")
      #expect(
        result.code == (isAll ? 0 : 5) && result.text == given, "\(words): \(result.text) \(result.err)")
      #expect(result.err.contains("k2: ") != isAll, "\(result.err)")
      #expect(result.err.contains("verify --repair") != isAll, "\(result.err)")
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory).sorted() == ["k1", "k3"])
    // The key stays in doubt after `verify` has found whose record was damaged.
    _ = try store.run("verify")
    try store.succeed("put", "k4", "x")
    let known = try store.run("list")
    #expect(known.code == 5 && known.text == "k1\nk3\nk4\n" && known.err.contains("k2: "), "\(known.err)")
    try store.succeed("put", "k2", "again")
    #expect(try store.succeed("list").lines == ["k1", "k2", "k3", "k4"])
  }

  /// Overwrites 512 bytes of the copy's journal from `text` on, and removes the index unless `keepsIndex`.
  private static func overwriteSector(of copy: Tool, at text: String, keepsIndex: Bool) throws {
    let name = (copy.store as NSString).lastPathComponent
    let result = try copy.scratch.shell(
      """
      file=\(name)/journal/0000000000000001.segment
      at=$(grep -abo '\(text)' $file | tail -1 | cut -d: -f1)
      head -c 512 /dev/zero | tr '\\0' X | dd of=$file bs=1 seek=$at conv=notrunc status=none
      """ + (keepsIndex ? "" : "\nrm \(name)/index \(name)/ledger"))
    #expect(result.code == 0, "\(result.out)")
  }

  @Test(
    "verify --repair fetches the records lost with a sector, which include older member records (G)",
    arguments: [true, false])
  func sector(keepsIndex: Bool) throws {
    let alpha = try Scratch().store("alpha")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(alpha.scratch.tool("beta"))
    for number in 10..<30 { try beta.succeed("put", "k\(number)", "value \(number) of some length") }
    try beta.succeed("sync", "alpha")
    let digest = try beta.succeed("digest").text
    try Self.overwriteSector(of: beta, at: "value 20 of", keepsIndex: keepsIndex)
    #expect(try beta.run("verify").code == 5)
    #expect(try beta.run("get", "k20").code == 5 && beta.run("get", "k22").code == 5)
    let old = try beta.run("get", "k12")
    #expect(old.code == (keepsIndex ? 0 : 5), "\(old.err)")
    #expect(try beta.run("get", "never there").code == (keepsIndex ? 1 : 5))
    #expect(try beta.succeed("get", "k28").text == "value 28 of some length")
    let repaired = try beta.run("verify", "--repair")
    #expect(repaired.code == 0 && repaired.text.contains("all whole"), "\(repaired.text) \(repaired.err)")
    #expect(try beta.succeed("digest").text == digest && beta.succeed("verify").text.contains("all whole"))
    try daemon.end()
  }

  @Test(
    "a daemon repairs the loss of several records by itself, even when their keys are unknown (G)"
  )
  func repairedByDaemon() throws {
    let alpha = try Scratch().store("alpha")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(alpha.scratch.tool("beta"))
    for number in 10..<30 { try beta.succeed("put", "k\(number)", "value \(number) of some length") }
    try beta.succeed("sync", "alpha")
    try Self.overwriteSector(of: beta, at: "value 20 of", keepsIndex: false)
    #expect(try beta.run("get", "k12").code == 5)
    let mending = try Daemon(beta)
    for _ in 0..<200 where try beta.run("get", "k20").code != 0 { Thread.sleep(forTimeInterval: 0.05) }
    try mending.end()
    #expect(mending.running.err.contains("newly damaged"), "\(mending.running.err)")
    #expect(try beta.succeed("digest").text == alpha.succeed("digest").text)
    #expect(try beta.succeed("verify").text.contains("all whole"))
    try daemon.end()
  }

  @Test("verify --repair counts the values that no peer has, and ends with 5")
  func lostForGood() throws {
    let alpha = try Scratch().store("alpha")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(alpha.scratch.tool("beta"))
    for number in 10..<30 { try beta.succeed("put", "k\(number)", "value \(number) of some length") }
    try Self.overwriteSector(of: beta, at: "value 20 of", keepsIndex: true)
    let lost = try (10..<30).filter { try beta.run("get", "k\($0)").code == 5 }.count
    #expect(lost > 1 && lost < 8)
    let repaired = try beta.run("verify", "--repair")
    #expect(repaired.code == 5 && repaired.err.contains("\(lost) keys lost by the damage"), "\(repaired.err)")
    #expect(try beta.succeed("verify").text.contains("all whole"))
    try daemon.end()
  }

  @Test("a prefix delete continues past damaged keys")
  func deleting() throws {
    let store = try Self.damaged()
    _ = try store.run("delete", "k2")
    let result = try store.scratch.shell("timeout -s KILL 30 $CLI --store store delete --prefix k")
    #expect(result.code == 0 || result.code == 5, "\(result.out)")
    #expect(Set(try store.run("list").lines).isDisjoint(with: ["k1", "k3"]))
  }
}

import Foundation
import Testing

/// Keys of which the disk has changed a byte: what can be read is given, and nobody takes it for all.
@Suite("Damaged keys, on the command line (F17, F37)") struct DamageTests {
  /// A store with k1, k2 and k3, each written twice, in which a byte of k2's value was changed. No process has met it yet.
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

  @Test("are named by list, dump and export, which give all the others and end with 5")
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
    // Once it is known whose record it was, it stays in doubt.
    _ = try store.run("verify")
    try store.succeed("put", "k4", "x")
    let known = try store.run("list")
    #expect(known.code == 5 && known.text == "k1\nk3\nk4\n" && known.err.contains("k2: "), "\(known.err)")
    try store.succeed("put", "k2", "again")
    #expect(try store.succeed("list").lines == ["k1", "k2", "k3", "k4"])
  }

  @Test("do not keep a delete of all that begin so from its end")
  func deleting() throws {
    let store = try Self.damaged()
    _ = try store.run("delete", "k2")
    let result = try store.scratch.shell("timeout -s KILL 30 $CLI --store store delete --prefix k")
    #expect(result.code == 0 || result.code == 5, "\(result.out)")
    #expect(Set(try store.run("list").lines).isDisjoint(with: ["k1", "k3"]))
  }
}

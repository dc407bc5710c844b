import Foundation
import SyncStore
import Testing

@testable import sync_cli

/// `import` and `export`: round trips of a directory tree.
@Suite struct TreeTests {
  @Test("a tree with unusual names, empty and large files is restored without differences")
  func identity() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let made = try scratch.shell(
      """
      mkdir -p tree/a/'with space'/deep tree/ключи && cd tree
      printf '' > empty; printf x > $'new\\nline'; printf y > $'\\xff\\xfe.bin'; printf z > 'ключи/имя'; printf - > -dash
      printf q > 'a/with space/deep/"quoted"'; head -c 20480 /dev/urandom > at; head -c 20481 /dev/urandom > above
      head -c 5000000 /dev/urandom > large; head -c 3000000 /dev/zero > $'\\xfd large'
      for i in $(seq 300); do echo "file $i" > a/f$i; done
      """)
    #expect(made.code == 0, "\(made.out)")
    #expect(
      try tool.succeed("import", scratch.path + "/tree", "--prefix", "t/").text.hasPrefix(
        "imported 310 files"))
    try tool.succeed("export", scratch.path + "/out", "--prefix", "t/")
    let difference = try scratch.shell("diff -r tree out")
    #expect(difference.out.isEmpty)
    #expect(difference.code == 0)
    let again = try tool.succeed("import", scratch.path + "/tree", "--prefix", "t/")
    #expect(again.text.hasPrefix("imported 0 files, 0 B, 310 unchanged"), "\(again.text)")
    #expect(try scratch.shell("ls -A store/blobs/partial; find out -name '.sync*'").out.isEmpty)
  }

  @Test("links and special files are skipped and counted, and never followed")
  func links() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    _ = try scratch.shell(
      "mkdir -p tree/d && echo in > tree/d/f && ln -s /etc tree/etc && ln -s d/f tree/l && mkfifo tree/p")
    let result = try tool.succeed("import", scratch.path + "/tree", "--json")
    #expect(result.text.contains("\"files\":1,"))
    #expect(result.text.contains("\"skipped\":3,"))
    #expect(result.err.contains("left out 3"))
    #expect(try tool.succeed("list").lines == ["d/f"])
  }

  @Test(
    "a key that would leave the directory is named and skipped; strict export then writes nothing",
    arguments: [
      "../up", "/absolute", "a/../../up", "a//b", "a/./b", "a/", "..", ".",
    ])
  func escape(key: String) throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "fine", "v")
    try tool.succeed("put", "--", key, "evil")
    let strict = try tool.run("export", scratch.path + "/out", "--strict")
    #expect(strict.code == 3 && strict.err.contains(key))
    #expect(try scratch.shell("ls -A out up 2>/dev/null").out.isEmpty)
    let result = try tool.run("export", scratch.path + "/out")
    #expect(result.code == 3 && result.err.contains("export \(key): "), "\(result.err)")
    #expect(try scratch.shell("find out -type f; ls up 2>/dev/null").out == "out/fine\n")
  }

  @Test("a symbolic link planted in the directory does not redirect an export")
  func planted() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "d/f", "v")
    _ = try scratch.shell("mkdir out elsewhere && ln -s ../elsewhere out/d")
    #expect(try tool.run("export", scratch.path + "/out").code == 7)
    #expect(try scratch.shell("ls -A elsewhere").out.isEmpty)
  }

  /// Walks `tree`, makes `change`, then imports what the walk found.
  private func importing(_ scratch: Scratch, after change: () throws -> Void) throws -> Store {
    let store = try Store.create(at: scratch.path + "/store", name: "store")
    let root = try Descriptor.reading(Array((scratch.path + "/tree").utf8))
    let tree = try TreeWalk(root)
    try change()
    let progress = Progress("", totalBytes: 0, enabled: false)
    var importer = Importer(
      store: store, root: root, prefix: [], progress: progress, failures: ItemFailures(command: "import"))
    do {
      try importer.run(tree)
      try importer.failures.check()
    } catch {
      // Background work may keep the store open for a moment; close it first.
      try store.close()
      throw error
    }
    return store
  }

  @Test("a file that grew after it was listed is imported at its present size")
  func grown() throws {
    let scratch = try Scratch()
    try scratch.write("tree/f", [1])
    let content = [UInt8](repeating: 2, count: 3 << 20)
    let store = try importing(scratch) { try scratch.write("tree/f", content) }
    let isSame = try store.get(Key("f"))?.bytes == content
    #expect(isSame)
    try store.close()
  }

  @Test(
    "a replacement of a listed file is not followed out of the directory, and never blocks",
    arguments: ["rm -r tree/a; ln -s ../elsewhere tree/a", "rm tree/a/b/f; mkfifo tree/a/b/f"])
  func replaced(change: String) throws {
    let scratch = try Scratch()
    try scratch.write("tree/a/b/f", Array("mine".utf8))
    try scratch.write("elsewhere/b/f", Array("not mine".utf8))
    let failure = try #require(throws: Failure.self) {
      _ = try importing(scratch) { _ = try scratch.shell(change) }
    }
    #expect(failure.code == .inputOutput)
    let store = try Store.open(at: scratch.path + "/store")
    #expect(try store.get(Key("a/b/f")) == nil)
    try store.close()
  }

  @Test("a file that vanishes after it was listed is named, and the others are stored")
  func vanished() throws {
    let scratch = try Scratch()
    for name in ["a", "b/f", "c"] { try scratch.write("tree/" + name, Array(name.utf8)) }
    let failure = try #require(throws: Failure.self) {
      _ = try importing(scratch) { _ = try scratch.shell("rm -r tree/b") }
    }
    #expect(
      failure.code == .notFound && failure.message.contains("1 failure, named above"), "\(failure.message)")
    let store = try Store.open(at: scratch.path + "/store")
    #expect(try store.get(Key("a"))?.bytes == [97] && store.get(Key("c"))?.bytes == [99])
    try store.close()
  }

  @Test("a small file replaces a value that is evicted or damaged")
  func overUnreadable() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    let small = Array("small".utf8)
    for key in ["elsewhere", "damaged"] {
      try daemon.tool.succeed("put", key, "-", input: [UInt8](repeating: 5, count: 100_000))
      try scratch.write("tree/" + key, small)
    }
    try beta.succeed("policy", "lazy")
    try beta.succeed("pull", "alpha")
    try daemon.end()
    for (tool, key) in [(beta, "elsewhere"), (daemon.tool, "damaged")] {
      let flipped = try scratch.shell(
        """
        for blob in $(find alpha/blobs/packs -type f); do
          chmod u+w $blob; printf X | dd of=$blob bs=1 seek=20000 conv=notrunc status=none
        done
        """)
      #expect(flipped.code == 0, "\(flipped.out)")
      let result = try tool.succeed("import", scratch.path + "/tree", "--json")
      #expect(result.text.contains("\"files\":2,"), "\(result.text)")
      #expect(try tool.succeed("get", key).out == small)
    }
  }

  @Test(
    "strict export refuses keys that would be both file and directory before anything is written"
  )
  func nested() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let lines = ["a", "x", "x-", "x-/y", "x/y"].map { "{\"key\":\"\($0)\",\"value\":\"v\"}" }
    try tool.succeed("load", "-", input: Array(lines.joined(separator: "\n").utf8))
    let refused = try tool.run("export", scratch.path + "/out", "--strict")
    #expect(refused.code == 3 && refused.err.contains("x-/y: \"x-\" is a key"), "\(refused.err)")
    #expect(try scratch.shell("ls").out == "store\n")
    var paths = NestedPaths()
    let objections = ["a", "a-b", "a.b/c", "a/b", "a0", "ab/c", "ab/c/d/e"].map {
      paths.objection(to: Array($0.utf8)) != nil
    }
    #expect(objections == [false, false, false, true, false, false, true])
  }
}

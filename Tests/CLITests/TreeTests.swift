import Testing

/// `import` and `export`: a tree comes back as it was.
@Suite struct TreeTests {
  @Test("a tree with odd names, empty and large files comes back without a difference")
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
    #expect(try scratch.shell("ls -A store/staging; find out -name '.sync*'").out.isEmpty)
  }

  @Test("links and special files are left out and counted, and never followed")
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
    "a key that would leave the directory is refused before anything is written",
    arguments: [
      "../up", "/absolute", "a/../../up", "a//b", "a/./b", "a/", "..", ".",
    ])
  func escape(key: String) throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "fine", "v")
    try tool.succeed("put", "--", key, "evil")
    let result = try tool.run("export", scratch.path + "/out")
    #expect(result.code == 3)
    #expect(result.err.contains(key))
    #expect(try scratch.shell("ls -A out up 2>/dev/null").out.isEmpty)
  }

  @Test("a link planted in the directory does not lead an export out of it")
  func planted() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "d/f", "v")
    _ = try scratch.shell("mkdir out elsewhere && ln -s ../elsewhere out/d")
    #expect(try tool.run("export", scratch.path + "/out").code == 7)
    #expect(try scratch.shell("ls -A elsewhere").out.isEmpty)
  }

  @Test("a name too long for a key is refused by name before anything is stored")
  func longName() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let part = String(repeating: "n", count: 200)
    try scratch.write("tree/a", [1])
    try scratch.write("tree/" + [String](repeating: part, count: 6).joined(separator: "/"), [2])
    let result = try tool.run("import", scratch.path + "/tree")
    #expect(result.code == 2)
    #expect(result.err.contains(part))
    #expect(try tool.succeed("list").lines.isEmpty)
  }
}

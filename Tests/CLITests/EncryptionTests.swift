import Glibc
import Testing

@Suite("Encryption on the command line")
struct EncryptionTests {
  let scratch: Scratch

  init() throws {
    scratch = try Scratch()
    try scratch.write("first", Array("correct horse\nnot this line\n".utf8))
    try scratch.write("second", Array("battery staple".utf8))
    try scratch.write("empty", [0x0A])
  }

  func file(_ name: String) -> String { scratch.path + "/" + name }

  @Test(
    "an encrypted store opens with a passphrase from a file or the environment, and says so without one"
  )
  func passphrase() throws {
    let tool = scratch.tool()
    try tool.succeed("init", "--encrypt", "--passphrase-file", file("first"))
    let variable = ["SYNC_PASSPHRASE": "correct horse"]
    #expect(try tool.run("put", "thekey", "thesecret", environment: variable).code == 0)
    let named = ["SYNC_PASSPHRASE_FILE": file("first")]
    #expect(try tool.run("get", "thekey", environment: named).text == "thesecret")
    let none = try tool.run("get", "thekey")
    #expect(none.code == 3 && none.err.contains("--passphrase-file"))
    let wrong = try tool.run("get", "thekey", environment: ["SYNC_PASSPHRASE": "wrong"])
    #expect(wrong.code == 3 && wrong.err.contains("the passphrase is wrong"))
    let empty = try tool.run("get", "thekey", "--passphrase-file", file("empty"))
    #expect(empty.code == 2)
    let found = try scratch.shell(
      "grep -rac 'thesecret\\|thekey\\|PRIVATE KEY\\|syncstore-group' store | grep -v ':0$'")
    #expect(found.out == "", "\(found.out)")
    #expect(try tool.run("verify", environment: variable).code == 0)
    #expect(try tool.run("status", environment: variable).code == 0)
  }

  @Test("an encrypted store opens with a credential of the service manager, unless a variable is set")
  func credential() throws {
    let tool = scratch.tool()
    try tool.succeed("init", "--encrypt", "--passphrase-file", file("first"))
    try scratch.write("given/passphrase", Array("correct horse\n".utf8))
    try scratch.write("none/passphrase", [0x0A])
    let given = ["CREDENTIALS_DIRECTORY": file("given")]
    #expect(try tool.run("status", environment: given).code == 0)
    let variable = given.merging(["SYNC_PASSPHRASE": "wrong"]) { $1 }
    let wrong = try tool.run("status", environment: variable)
    #expect(wrong.code == 3 && wrong.err.contains("the passphrase is wrong"), "\(wrong.err)")
    // Declared and empty, or not declared: as without a service manager.
    for directory in ["none", "absent"] {
      let missing = try tool.run("status", environment: ["CREDENTIALS_DIRECTORY": file(directory)])
      #expect(missing.code == 3 && missing.err.contains("--passphrase-file"), "\(missing.err)")
    }
    // A plaintext store needs none.
    let plain = try scratch.store("plain")
    #expect(try plain.run("status", environment: given).code == 0)
  }

  @Test("a plaintext store refuses an explicit passphrase and ignores one in the environment")
  func plain() throws {
    let tool = try scratch.store()
    #expect(try tool.run("list", "--passphrase-file", file("first")).code == 2)
    #expect(try tool.run("list", environment: ["SYNC_PASSPHRASE": "x"]).code == 0)
    #expect(try tool.run("rekey", environment: ["SYNC_NEW_PASSPHRASE": "x"]).code == 2)
  }

  @Test("a passphrase is raw bytes, from a file or the environment, UTF-8 or not")
  func bytes() throws {
    try scratch.write("latin", [0x63, 0x61, 0x66, 0xE9, 0x0A])
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      SYNC_PASSPHRASE=$'caf\\xe9' $CLI init --encrypt || exit 9
      $CLI status --passphrase-file latin || exit 8
      SYNC_PASSPHRASE=$'caf\\xe8' $CLI status
      """)
    #expect(result.code == 3, "\(result.out)")
  }

  @Test("an explicit passphrase for a store that would be plaintext is refused, and nothing is created")
  func unused() throws {
    let tool = scratch.tool()
    for words in [["init"], ["join", "token"]] {
      let result = try tool.start(words + ["--passphrase-file", file("first")]).finish()
      #expect(result.code == 2 && result.err.contains("--encrypt"), "\(result.err)")
    }
    #expect(try scratch.shell("ls").out == "empty\nfirst\nsecond\n")
  }

  @Test("rekey changes the passphrase, the master key, encrypts and decrypts")
  func rekey() throws {
    let tool = try scratch.store()
    try tool.succeed("put", "k", "v")
    let identity = try scratch.read("store/keys/device.pem")
    let new = ["SYNC_NEW_PASSPHRASE": "correct horse"]
    #expect(try tool.run("rekey", "--encrypt", environment: new).code == 0)
    #expect(try tool.run("get", "k").code == 3)
    #expect(try scratch.read("store/keys/device.pem") != identity)
    #expect(
      try tool.run("rekey", "--passphrase-file", file("first"), "--new-passphrase-file", file("second")).code
        == 0)
    #expect(try tool.run("get", "k", "--passphrase-file", file("first")).code == 3)
    let second = ["SYNC_PASSPHRASE": "battery staple"]
    let report = try tool.run("--json", "rekey", "--master-key", environment: second)
    #expect(report.code == 0 && report.text.contains("\"complete\":true"), "\(report.text)")
    #expect(try tool.run("get", "k", environment: second).text == "v")
    #expect(try tool.run("rekey", "--master-key", "--decrypt", environment: second).code == 2)
    #expect(try tool.run("rekey", "--decrypt", environment: second).code == 0)
    #expect(try tool.run("get", "k").text == "v")
    #expect(try scratch.read("store/keys/device.pem") == identity)
  }

  @Test("an encrypted store syncs with a plaintext one, and is rekeyed while the daemon runs")
  func daemon() throws {
    let here = scratch.tool("here")
    let variables = ["SYNC_PASSPHRASE": "correct horse", "SYNC_NEW_PASSPHRASE": "battery staple"]
    let after = ["SYNC_PASSPHRASE": "battery staple"]
    #expect(try here.run("init", "--name", "here", "--encrypt", environment: variables).code == 0)
    #expect(try here.run("put", "k", "v", environment: variables).code == 0)
    let serving = try here.start(["serve", "--listen", "127.0.0.1:0"], environment: variables)
    defer { serving.signal(15) }
    #expect(try #require(serving.firstLine()).hasPrefix("listening on"))
    let token = try here.run("invite", environment: variables).lines.first ?? ""
    let there = scratch.tool("there")
    try there.succeed("join", token, "--name", "there")
    #expect(try there.succeed("get", "k").text == "v")
    #expect(try here.run("rekey", environment: variables).code == 0)
    #expect(try here.run("rekey", "--master-key", environment: after).code == 0)
    try there.succeed("put", "back", "w")
    try there.succeed("sync", "here")
    #expect(try here.run("get", "back", environment: after).text == "w")
    #expect(try here.run("digest", environment: after).text == there.succeed("digest").text)
  }

  @Test("a decryption during a running daemon reports that it is incomplete, and the next one completes it")
  func decryptingWhileDaemonRuns() throws {
    let tool = scratch.tool()
    let variables = ["SYNC_PASSPHRASE": "correct horse"]
    #expect(try tool.run("init", "--encrypt", environment: variables).code == 0)
    #expect(try tool.run("put", "k", "v", environment: variables).code == 0)
    let serving = try tool.start(["serve", "--listen", "127.0.0.1:0"], environment: variables)
    _ = try #require(serving.firstLine())
    let beside = try tool.run("rekey", "--decrypt", environment: variables)
    #expect(beside.code == 6 && beside.err.contains("keep"), "\(beside.text) \(beside.err)")
    serving.signal(15)
    #expect(serving.finish().code == 0)
    #expect(try tool.run("get", "k").code == 3)
    let alone = try tool.run("rekey", "--decrypt", environment: variables)
    #expect(alone.code == 0 && alone.text.hasPrefix("decrypted: "), "\(alone.text) \(alone.err)")
    #expect(try tool.run("get", "k").text == "v")
  }

  @Test("a daemon whose store is encrypted by another process ends, so that it restarts with the passphrase")
  func encryptingWhileDaemonRuns() throws {
    let tool = try scratch.store()
    // A short watchdog interval makes the daemon check often.
    let serving = try tool.start(
      ["serve", "--listen", "127.0.0.1:0"], environment: ["WATCHDOG_USEC": "200000"])
    _ = try #require(serving.firstLine())
    #expect(
      try tool.run("rekey", "--encrypt", environment: ["SYNC_NEW_PASSPHRASE": "correct horse"]).code == 0)
    // A daemon that keeps running is ended here, and then exits with another code.
    for _ in 0..<3000 where serving.isRunning { usleep(10_000) }
    serving.signal(15)
    let end = serving.finish()
    #expect(end.code == 3 && end.err.contains("ending: "), "\(end.err)")
    let again = try tool.start(
      ["serve", "--listen", "127.0.0.1:0"], environment: ["SYNC_PASSPHRASE": "correct horse"])
    #expect(again.firstLine()?.hasPrefix("listening on") == true)
    again.signal(15)
    #expect(again.finish().code == 0)
  }
}

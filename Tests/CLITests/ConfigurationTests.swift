import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// The daemon's configuration: the list of settings, the schemas made from it, and mistakes.
@Suite("configuration of the daemon", .timeLimit(.minutes(Patience.minutes(2)))) struct ConfigurationTests {
  // MARK: The list of settings

  @Test("the schemas are what the list of settings says: make schemas writes them")
  func schemas() throws {
    for page in ConfigurationSchema.pages {
      let text = try String(contentsOf: Checkout.url("schemas/" + page.file), encoding: .utf8)
      #expect(text == page.text, "schemas/\(page.file) differs: run make schemas")
    }
    #expect(ConfigurationSchema.pages.map(\.file) == ["config.md", "config.schema.json"])
  }

  /// A configuration with one setting.
  private static func file(_ setting: Setting, _ value: JSON) -> ConfigurationFile {
    let member = JSON.object([.init(name: setting.member, value: value)])
    let root = setting.parent.map { JSON.object([.init(name: $0, value: member)]) } ?? member
    return ConfigurationFile(root.encoded, named: "F")
  }

  @Test("each default is the program's own, and each example is accepted and changes something")
  func defaults() throws {
    for setting in Settings.all {
      var untouched = ServeConfiguration()
      if setting.parent != nil { untouched.blobs = BlobConfiguration() }
      if let standard = setting.standard {
        let file = Self.file(setting, standard)
        #expect(file.mistakes.isEmpty, "\(setting.name): \(file.mistakes)")
        #expect(file.configuration == untouched, "\(setting.name) has another default")
      }
      // The file of the example need not be there.
      if case .file = setting.form { continue }
      let example = Self.file(setting, setting.example)
      let meaningless = example.mistakes.filter { !$0.what.contains("means nothing while") }
      #expect(meaningless.isEmpty, "\(setting.name): \(example.mistakes)")
      #expect(example.configuration != untouched, "\(setting.name): its example changes nothing")
    }
  }

  @Test("each bound is accepted, and the number beyond it is refused with unit and bounds")
  func bounds() throws {
    var count = 0
    for setting in Settings.all {
      for case .whole(let range) in setting.form.choices {
        for number in [range.lowerBound, range.upperBound] {
          #expect(Self.file(setting, .integer(number)).mistakes.isEmpty, "\(setting.name) \(number)")
        }
        let beyond =
          (range.lowerBound > 0 ? [range.lowerBound - 1] : [])
          + (range.upperBound < .max ? [range.upperBound + 1] : [])
        for number in beyond {
          let mistake = try #require(Self.file(setting, .integer(number)).mistakes.first)
          #expect(mistake.setting == setting.name && mistake.what.contains("\(number)"))
          #expect(mistake.advice.contains("\(range.lowerBound) to \(range.upperBound)"))
          if let unit = setting.unit { #expect(mistake.text.contains(unit.rawValue)) }
          count += 1
        }
        #expect(Self.file(setting, .number("1.5")).mistakes.count == 1)
      }
    }
    #expect(count > 8)
  }

  @Test(
    "each setting refuses a value of another kind", arguments: [JSON.null, true, .number("1.5"), ["a": 1]])
  func kinds(value: JSON) {
    for setting in Settings.all where setting.form.words(nil) != "an object" {
      let mistakes = Self.file(setting, value).mistakes
      #expect(mistakes.count == 1 && mistakes[0].setting == setting.name, "\(setting.name): \(mistakes)")
    }
  }

  // MARK: Mistakes

  @Test(
    "a mistake is named with its place, and what to do",
    arguments: [
      (#"{"lisen": ":1"}"#, #"1:2: "lisen" is no setting: did you mean "listen"?"#),
      (#"{"quux": 1}"#, #"1:2: "quux" is no setting: leave it out: sync-cli.conf(5) lists the settings"#),
      ("{\n\t\"log\": \"jsno\"}", #"2:9: "log" is none of the words that it can be: did you mean "json"?"#),
      (#"{"log": 7}"#, #"1:9: "log" is a number: write "journal" or "json""#),
      (
        #"{"listen": "x:y:z"}"#,
        #"1:12: "listen" is not valid: write an address such as "127.0.0.1:7420", or ":7420" for every address"#
      ),
      (
        #"{"retry_seconds": 100000}"#,
        #"1:19: "retry_seconds" is 100000 seconds, above 86400: write a whole number of seconds from 1 to 86400"#
      ),
      (#"{"peers": ["a", 5]}"#, #"1:17: "peers" has an item that is a number: write a text"#),
      (#"{"log": "json", "log": "json"}"#, #"1:17: "log" is there twice: leave out one"#),
      (#"{"log": "json",}"#, "1:15: ',' stands before '}': take it out"),
      ("{\"log\": \"json\"\n\"ping_seconds\": 5}", "1:15: ',' is missing: put it in"),
      ("{", "1:2: a member's name in quotes should be here: correct the JSON there"),
      ("", "1:1: the text ends where a value should be: correct the JSON there"),
      ("[]", "1:1: it holds a list, and no object: begin with {"),
      ("// é\n{} 1", "2:4: something follows the value: correct the JSON there"),
      (#"{"peers": [}"#, "1:12: no value begins with '}': correct the JSON there"),
      ("{\"log\": \"json\n}", "1:9: a text has no closing quote on its line: correct the JSON there"),
      ("{ /* x", "1:3: a comment has no end: correct the JSON there"),
      ("{\"é\u{308}\": 1, \"log\": }", nil),
      ("{\"log\": \"json", "1:9: a text has no closing quote: correct the JSON there"),
      (#"{"blobs": {"copys": 2}}"#, #"1:12: "blobs.copys" is no setting: did you mean "copies"?"#),
      (
        #"{"blobs": {"eager_prefixes": ["a"]}}"#,
        #"1:12: "blobs.eager_prefixes" means nothing while "blobs.take" is "eager": write "lazy" or a size for "blobs.take""#
      ),
      (
        #"{"passphrase_file": "/nonexistent/x"}"#,
        #"1:21: "passphrase_file" names a file that cannot be read: cannot open /nonexistent/x: No such file or directory: check the path"#
      ),
      (#"{"passphrase_file": "/"}"#, #"1:21: "passphrase_file" names a directory: name a file"#),
      (
        #"{"passphrase_file": "x"}"#,
        #"1:21: "passphrase_file" does not begin with /: write the path of a file, from /"#
      ),
    ] as [(String, String?)])
  func mistakes(text: String, line: String?) {
    let mistakes = ConfigurationFile(Array(text.utf8), named: "F").mistakes
    guard let line else {
      // A column counts characters, not bytes or scalars.
      #expect(mistakes.map(\.place.column) == [2, 17])
      return
    }
    #expect(mistakes.map(\.text) == ["F:" + line])
  }

  @Test("all mistakes of a file are named at once, in its order, and a broken member hides no other")
  func several() {
    let text = """
      {
        "listn": 1, // "log": 2
        "log_level": nope, /* { */ "log": 'x',
        "peers": ["a", 'b', "c"],
        "schedule": {"a": {"b": 1}},
        "ping_seconds": "unclosed,
        "retry_seconds": 0,
        "blobs": {"copies": 65, "take": "eagr",},
      }
      """
    let file = ConfigurationFile(Array(text.utf8), named: "F")
    let lines = file.mistakes.map(\.place.line)
    #expect(lines == lines.sorted() && Set(lines) == [2, 3, 4, 5, 6, 7, 8], "\(file.mistakes.map(\.text))")
    for part in [
      #""listn""#, "'n'", #""retry_seconds" is 0"#, #""blobs.copies" is 65"#, #"mean "eager"?"#,
      "closing quote",
    ] {
      #expect(file.mistakes.count { $0.text.contains(part) } == 1, "\(part): \(file.mistakes.map(\.text))")
    }
    #expect(file.mistakes.count < 16, "\(file.mistakes.map(\.text))")
    #expect(file.configuration.keeping.peers == ["a", "c"])
  }

  @Test(
    "a secret is refused, not repeated, and the message says where it belongs",
    arguments: [
      (#"{"passphrase": "hunter2"}"#, "passphrase_file"), (#"{"group_key": "hunter2"}"#, "file of its own"),
      (#"{"blobs": {"secret-token": "hunter2"}}"#, "sync-cli join"),
      (#"{"apiPassword": 1}"#, "file of its own"),
      (#"{"peers": ["-----BEGIN PRIVATE KEY----- hunter2"]}"#, "replace the secret"),
      (#"{"listen": "syncstore1:hunter2"}"#, "replace the secret"),
      (#"{"relay": "s3://me:hunter2@h/"}"#, "replace the secret"),
    ])
  func secrets(text: String, says: String) {
    let mistakes = ConfigurationFile(Array(text.utf8), named: "F").mistakes
    #expect(mistakes.count == 1 && mistakes[0].text.contains(says), "\(mistakes)")
    #expect(!mistakes.contains { $0.text.contains("hunter2") })
  }

  // MARK: The program

  @Test("serve --check names all mistakes, as lines or JSON, and serve refuses to start with the same lines")
  func program() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let path = scratch.path + "/bad.json"
    try scratch.write("bad.json", Array("{\"lisen\": 1,\n \"log\": 2}".utf8))
    let lines =
      "sync-cli: serve: \(path):1:2: \"lisen\" is no setting: did you mean \"listen\"?\n"
      + "sync-cli: serve: \(path):2:9: \"log\" is a number: write \"journal\" or \"json\"\n"
    for words in [
      ["serve", "--check", path], ["serve", "--check", "--config", path], ["serve", "--config", path],
    ] {
      let result = try alpha.start(words).finish()
      #expect(result.code == 2 && result.out.isEmpty && result.err == lines, "\(words): \(result.err)")
    }
    // The configuration is checked before the store, which need not be there yet.
    #expect(try scratch.tool("none").run("serve", "--check", path).err == lines)
    let json = try alpha.run("serve", "--check", path, "--json")
    #expect(json.code == 2 && json.lines.count == 2)
    #expect(json.lines.first?.contains(#""line":1,"column":2,"what":"\"lisen\" is no setting""#) == true)
    #expect(json.err == "sync-cli: serve: \(path): 2 mistakes: correct what the lines name\n")
    for words in [["serve", path], ["serve", "--check", path, "--config", path]] {
      #expect(try alpha.start(words).finish().code == 2, "\(words)")
    }
  }

  @Test("a name in peers that no peer has is named with its place and the nearest one")
  func unknownPeers() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    try alpha.succeed("peer", "add", "harbour", "127.0.0.1:1")
    let path = scratch.path + "/peers.json"
    try scratch.write("peers.json", Array("{\n\"peers\": [\"harbour\", \"harbor\"]}".utf8))
    let result = try alpha.run("serve", "--check", path)
    #expect(result.code == 2)
    #expect(result.err.contains(#"peers.json:2:22: "peers" names "harbor""#), "\(result.err)")
    #expect(result.err.hasSuffix("did you mean \"harbour\"?\n"), "\(result.err)")
    // The daemon starts: the peer may be added later. A reload with a mistake keeps what is in use.
    try scratch.write("peers.json", Array("{\"listen\": \"127.0.0.1:0\", \"peers\": [\"harbor\"]}".utf8))
    let running = try alpha.start(["serve", "--config", path])
    #expect(running.firstLine()?.hasPrefix("listening on 127.0.0.1:") == true)
    try scratch.write("peers.json", Array("{\"log\": 1,\n\"schedule\": 0}".utf8))
    running.signal(SIGHUP)
    while running.isRunning, !running.err.contains("configuration kept as it was") { usleep(10_000) }
    running.signal(SIGTERM)
    #expect(running.finish().code == 0)
    #expect(running.err.contains(#"<4>serve: "peers" names "harbor""#), "\(running.err)")
    #expect(running.err.contains("<3>serve: \(path):1:9: "), "\(running.err)")
    #expect(running.err.contains("<3>configuration kept as it was: serve: \(path):2:13: "), "\(running.err)")
  }

  @Test("passphrase_file opens an encrypted store without a terminal, and an option overrides it")
  func passphraseFile() throws {
    let scratch = try Scratch()
    let alpha = scratch.tool("alpha")
    try scratch.write("right", Array("correct horse\n".utf8))
    try scratch.write("wrong", Array("battery staple\n".utf8))
    try alpha.succeed("init", "--encrypt", "--passphrase-file", scratch.path + "/right")
    try scratch.write("serve.json", Array("{\"passphrase_file\": \"\(scratch.path)/right\"}".utf8))
    let path = scratch.path + "/serve.json"
    try alpha.succeed("serve", "--check", path)
    #expect(try alpha.run("serve", "--check", path, "--passphrase-file", scratch.path + "/wrong").code == 3)
    // A store that is not encrypted needs none.
    try scratch.store("plain").succeed("serve", "--check", path)
  }
}

import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// `bundle`: what is in the archive, and what is not.
@Suite("bundle for a report on a problem", .timeLimit(.minutes(Patience.minutes(2)))) struct BundleTests {
  /// Unpacks an archive with tar(1), and returns its files by name.
  private static func unpacked(_ archive: String, in scratch: Scratch) throws -> [String: String] {
    let folder = "out-\(UUID().uuidString)"
    let result = try scratch.shell("mkdir \(folder) && tar -C \(folder) -xzf '\(archive)'")
    #expect(result.code == 0 && result.out.isEmpty, "\(result.out)")
    let path = scratch.path + "/\(folder)/bundle"
    var files: [String: String] = [:]
    for name in try FileManager.default.contentsOfDirectory(atPath: path) {
      files[name] = String(
        decoding: try Data(contentsOf: URL(fileURLWithPath: path + "/" + name)), as: UTF8.self)
    }
    return files
  }

  /// Marks that must not be in a bundle: keys, values, names, hosts, paths, passphrases.
  private static let marks = [
    "kumquat", "persimmon", "Quetzal", "Xanadu", "harbour.example", "10.98.76.54", "fd00:db8::9", "lagoon",
    "zeppelin", "correct horse", "syncstore1:", "PRIVATE KEY", "tamarind",
  ]

  /// A store with marked keys, values, names, peers, a scope and beaten values; encrypted under a passphrase.
  private func marked(_ scratch: Scratch) throws -> Tool {
    let alpha = scratch.tool("lagoon/alpha")
    try scratch.write("lagoon/passphrase", Array("correct horse\n".utf8))
    let secret = ["--passphrase-file", scratch.path + "/lagoon/passphrase"]
    func run(_ words: String..., input: [UInt8]? = nil) throws {
      let result = try alpha.start(words + secret, input: input).finish()
      #expect(result.code == 0, "\(words): \(result.err)")
    }
    try run("init", "--name", "Quetzal", "--encrypt")
    try run("put", "kumquat/1", "persimmon")
    try run("put", "kumquat/large", "-", input: Array(repeating: UInt8(ascii: "z"), count: 90_000))
    try run("peer", "add", "Xanadu", "harbour.example:7421")
    try run("peer", "add", "tamarind", "10.98.76.54:7420")
    try run("peer", "add", "six", "[fd00:db8::9]:7420")
    try run("invite", "--address", "harbour.example:1")
    return alpha
  }

  @Test("nothing private is in a bundle, and what a reader needs is")
  func redacted() throws {
    let scratch = try Scratch()
    let alpha = try marked(scratch)
    let configuration = """
      {"listen": "harbour.example:7420", "peers": ["Xanadu", "tamarind"], "retry_seconds": 33, "log": "json",
       "passphrase_file": "\(scratch.path)/lagoon/passphrase", "zeppelin": 1,
       "blobs": {"take": "lazy", "eager_prefixes": ["kumquat/"]}}
      """
    try scratch.write("serve.json", Array(configuration.utf8))
    let log = """
      <6>Xanadu: cannot connect to harbour.example:7421: Connection refused: is it up?
      <5>zeppelin connected from 10.98.76.54:4000
      <4>zeppelin: went away
      2026-11-28T10:15:30+0000 lagoon sync-cli[17]: <3>\(alpha.store)/journal: damaged: "kumquat/1", a record of key kumquat/1
      {"time":"2026-11-28T10:15:30.123Z","level":"error","message":"Xanadu: [fd00:db8::9]:7420 gave syncstore1:abc"}
      <5>listening on 0.0.0.0:7420, store Quetzal in \(alpha.store)
      """
    try scratch.write("log", Array(log.utf8))
    let file = scratch.path + "/b.tar.gz"
    let words = [
      "bundle", file, "--passphrase-file", scratch.path + "/lagoon/passphrase", "--config",
      scratch.path + "/serve.json", "--log", scratch.path + "/log",
    ]
    let result = try alpha.start(words).finish()
    #expect(result.code == 0 && result.err.isEmpty, "\(result.err)")
    #expect(result.text.hasSuffix("look into it before you send it\n"))
    let files = try Self.unpacked(file, in: scratch)
    #expect(!files.keys.contains { $0.hasSuffix(".failed") }, "\(files.keys.sorted())")
    for (name, text) in files {
      for mark in Self.marks + [scratch.path, NSTemporaryDirectory() + "s"] {
        #expect(!text.contains(mark), "\(name) has \(mark): \(text)")
      }
    }
    let json = try #require(try? JSONParser.parse(Array((files["status.json"] ?? "").utf8)))
    #expect(json["keys"] == 2 && json["name"] == "this-copy" && json["path"] == "<store>", "\(json)")
    #expect(files["peers.json"]?.contains(#""name":"peer-1","addresses":["peer-1"]"#) == true)
    #expect(files["segments.json"]?.contains(#""header":"whole","number":1"#) == true)
    #expect(files["index.json"]?.contains(#""is_encrypted":1"#) == true)
    #expect(files["machine.json"]?.contains(#""page_bytes":4096"#) == true)
    #expect(files["machine.json"]?.contains(#""type":""#) == true)
    #expect(files["files.json"]?.contains(#""file":"keys/ring""#) == true, "\(files["files.json"] ?? "")")
    #expect(files["conflicts.json"]?.contains(#""open_invitations":1"#) == true)
    for line in [
      #"{"setting":"listen","value":"<text>"}"#, #"{"setting":"peers","value":"<2 texts>"}"#,
      #"{"setting":"retry_seconds","value":33}"#, #"{"setting":"blobs.take","value":"lazy"}"#,
      #"{"setting":"log","value":"json"}"#, #""mistake":"\"…\" is no setting""#,
    ] {
      #expect(
        files["configuration.json"]?.contains(line) == true, "\(line): \(files["configuration.json"] ?? "")")
    }
    let lines = files["log.txt"]?.split(separator: "\n").map(String.init) ?? []
    #expect(
      lines == [
        "<6>peer-1: cannot connect to peer-1: Connection refused: is it up?",
        "<5>… connected from peer-3:4000", "<4>…: went away",
        #"2026-11-28T10:15:30+0000 <3><store><path>: damaged: "…", a record of key …"#,
        "2026-11-28T10:15:30.123Z error peer-1: peer-2 gave …",
        "<5>listening on <address>, store this-copy in <store>",
      ])
  }

  @Test("a store that is encrypted gives a bundle without its passphrase: the parts that need it say so")
  func withoutPassphrase() throws {
    let scratch = try Scratch()
    let alpha = try marked(scratch)
    let listed = try alpha.run("bundle", "--list")
    #expect(listed.code == 0, "\(listed.err)")
    #expect(listed.text.contains("segments.json  ") && listed.text.contains("status.json.failed  "))
    #expect(listed.lines.contains { $0.contains("not made: passphrase: there is no terminal") })
    #expect(try alpha.run("bundle", "--dry-run").text == listed.text)
    #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path).sorted() == ["lagoon"])
  }

  @Test("a damaged store gives a bundle: each part that fails says why")
  func damaged() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    for index in 0..<20 { try alpha.succeed("put", "kumquat\(index)", "persimmon \(index)") }
    let broken = try scratch.shell(
      """
      cd alpha; printf XXXXXXXX | dd of=index conv=notrunc status=none
      printf X | dd of=journal/0000000000000001.segment bs=1 seek=60 conv=notrunc status=none
      at=$(grep -abo 'persimmon 7' journal/0000000000000001.segment | head -1 | cut -d: -f1)
      printf X | dd of=journal/0000000000000001.segment bs=1 seek=$at conv=notrunc status=none
      mkdir -p blobs/objects; echo nonsense > blobs/catalogue.sqlite; touch blobs/objects/secret-kumquat kumquat
      """)
    #expect(broken.code == 0, "\(broken.out)")
    let archive = try alpha.run("bundle", "-")
    #expect(archive.code == 0, "\(archive.err)")
    try scratch.write("damaged.tar.gz", archive.out)
    let files = try Self.unpacked(scratch.path + "/damaged.tar.gz", in: scratch)
    #expect(files["segments.json"]?.contains("one of two copies is damaged") == true, "\(files)")
    #expect(files["index.json.failed"]?.contains("its header is damaged") == true, "\(files)")
    #expect(files["catalogue.json.failed"] != nil && files["problems.json"] != nil, "\(files.keys.sorted())")
    #expect(files["problems.json"]?.contains(#""name":"damaged""#) == true, "\(files)")
    for (name, text) in files {
      #expect(!text.contains("kumquat") && !text.contains(scratch.path), "\(name): \(text)")
    }

    // Without a readable identity the store cannot be opened at all.
    try scratch.write("alpha/STORE", Array("nonsense".utf8))
    let again = try alpha.run("bundle", scratch.path + "/again.tar.gz")
    #expect(again.code == 0 && again.text.contains("not made: each says why"), "\(again.err)")
    let rest = try Self.unpacked(scratch.path + "/again.tar.gz", in: scratch)
    #expect(rest["status.json.failed"] != nil && rest["files.json"] != nil && rest["segments.json"] != nil)
  }

  @Test("FILE is new, only for its owner, named after store and time by default; what is no store is refused")
  func file() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let result = try scratch.shell(
      """
      set -e; export SYNC_STORE=$PWD/alpha HOME=$PWD; "$CLI" bundle --quiet
      ls -l sync-store-alpha-*.tar.gz | cut -c1-10; ls | grep -cE '^sync-store-alpha-[0-9]{8}T[0-9]{6}Z\\.tar\\.gz$'
      """)
    #expect(result.out == "-rw-------\n1\n", "\(result.out)")
    try scratch.write("there", [1])
    let refused = try alpha.run("bundle", scratch.path + "/there")
    #expect(refused.code == 2 && refused.err.contains("not replaced"), "\(refused.err)")
    #expect(try scratch.tool("nothing").run("bundle", scratch.path + "/x").code == 2)
    #expect(try scratch.read("there") == [1])
  }

  @Test(
    "a message loses what is private, and keeps the rest",
    arguments: [
      (
        "at 2026-11-28T10:15:30.123Z see \"sync-cli verify\"",
        "at 2026-11-28T10:15:30.123Z see 'sync-cli verify'"
      ),
      ("\"sync-cli get\" and \"sync-cli secret\"", "'sync-cli get' and \"…\""),
      ("read \"a\"secret\": no: see \"sync-cli verify\"", "read \"…\": no: see 'sync-cli verify'"),
      ("read \"\u{301}secret\": no", "read \"…\": no"), ("open /\u{301}secret: no", "open <path>: no"),
      ("hut\u{301} and hut", "peer-1\u{301} and peer-1"), ("of key \u{301} secret", "of key …"),
      ("dial host.example.org:7420 and ::1", "dial <address> and ::1"),
      ("2001:db8:0:1::5 left", "<address> left"),
      ("open /etc/x: no", "open <path>: no"), ("hut and huts", "peer-1 and huts"),
      ("to s3://bucket/key done", "to <address> done"), ("an \"open text", "an \"…\""),
      ("hash 0123456789abcdef0123456789abcdef0123", "hash …"),
    ])
  func messages(message: String, redacted: String) {
    var redactor = Redactor()
    redactor.replace("hut", by: "peer-1")
    #expect(redactor.text(message) == redacted)
  }

  @Test(
    "an archive of many sizes is what tar reads, and gzip checks", arguments: [0, 1, 511, 512, 513, 100_000])
  func archives(count: Int) throws {
    let scratch = try Scratch()
    let content = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 ^ $0 >> 7) }
    var tar = TarWriter(time: 1_700_000_000)
    tar.add("bundle/a", content)
    tar.add("bundle/b", [7])
    tar.finish()
    try scratch.write("plain.tar", tar.bytes)
    let result = try scratch.shell(
      "tar -xf plain.tar && stat -c %Y bundle/b")
    #expect(result.code == 0 && result.out == "1700000000\n", "\(result.out)")
    #expect(try scratch.read("bundle/a") == content && scratch.read("bundle/b") == [7])
  }
}

import Foundation
import SyncStore
import Testing

@testable import sync_cli

/// `load` and `dump`: lines of JSON represent every value.
@Suite struct LineTests {
  @Test("a dump can be loaded, and dumping again gives the same output")
  func roundTrip() throws {
    let scratch = try Scratch()
    let (first, second) = (try scratch.store("first"), try scratch.store("second"))
    try first.succeed("put", "text", "é\n\"quoted\"\t\u{1}")
    try first.succeed("put", "binary", "-", input: Array(0...255))
    try first.succeed("put", "empty", "")
    try first.succeed("put", "int", "--type", "int", "--", "-9223372036854775808")
    try first.succeed("put", "double", "--type", "double", "1e-320")
    try first.succeed("put", "flag", "--type", "bool", "false")
    try first.succeed("put", "later", "v", "--ttl", "1h")
    try first.succeed("put", "large", "-", input: (0..<100_000).map { UInt8(truncatingIfNeeded: $0 / 7) })
    let dump = try first.succeed("dump").out
    try second.succeed("load", "-", input: dump)
    #expect(try second.succeed("dump").out == dump)
    #expect(dump.count { $0 == 10 } == 8)
  }

  @Test(
    "an invalid line is named, and the other lines are stored",
    arguments: [
      ("{\"key\":\"k\"}", "neither \"value\""), ("{\"value\":\"v\"}", "neither \"key\""),
      ("nonsense", "no value begins"),
      ("{\"key\":\"\",\"value\":\"v\"}", "at least one byte"),
      ("{\"key\":\"k\",\"base64\":\"?\"}", "base 64"),
      ("{\"key\":\"k\",\"value\":\"v\",\"type\":\"int\"}", "not of type int"),
      ("{\"key\":\"k\",\"value\":\"v\",\"type\":\"odd\"}", "no type"),
      ("{\"key\":\"k\",\"value\":\"v\"", "',' or '}'"),
      ("{\"key\":\"k\",\"value\":\"v\",\"expires\":\"soon\"}", "expires"),
    ])
  func wrongLine(line: String, says: String) throws {
    let tool = try Scratch().store()
    let result = try tool.run(
      "load", "-",
      input: Array(
        "{\"key\":\"before\",\"value\":\"v\"}\n\n\(line)\n{\"key\":\"behind\",\"value\":\"v\"}\n".utf8))
    #expect(result.code == 2)
    #expect(result.err.contains("line 3"), "\(result.err)")
    #expect(result.err.contains(says), "\(result.err)")
    #expect(try tool.succeed("list").lines == ["before", "behind"])
  }

  @Test("a source that fails midway leaves the lines before it stored")
  func failingSource() throws {
    let tool = try Scratch().store()
    let pipe = Pipe()
    // Reading fails once the pipe is empty, since its writer is still open.
    #expect(fcntl(pipe.fileHandleForReading.fileDescriptor, F_SETFL, O_NONBLOCK) == 0)
    pipe.fileHandleForWriting.write(Data("{\"key\":\"before\",\"value\":\"v\"}\n{\"key\":\"half".utf8))
    let result = try tool.start(["load", "-"], source: pipe.fileHandleForReading).finish()
    #expect(result.code == 7, "\(result.err)")
    #expect(try tool.succeed("list").lines == ["before"])
    try pipe.fileHandleForWriting.close()
  }

  @Test("a value of the maximum depth is dumped and loaded, and a deeper one is refused")
  func depth() throws {
    let scratch = try Scratch()
    let (first, second) = (try scratch.store("first"), try scratch.store("second"))
    func nested(_ depth: Int) -> String {
      String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    }
    try first.succeed("put", "deep", "--type", "cbor", nested(Limits.codedValueDepth))
    #expect(try first.run("put", "deeper", "--type", "cbor", nested(Limits.codedValueDepth + 1)).code == 2)
    let dump = try first.succeed("dump")
    #expect(dump.text.contains("\"value\":[[["), "\(dump.text)")
    try second.succeed("load", "-", input: dump.out)
    #expect(try second.succeed("dump").out == dump.out)
  }

  @Test(
    "a map with names that are equal in Unicode or JSON is dumped and loaded",
    arguments: [
      // e with an acute accent as one scalar and as two.
      [0xA2, 0x62, 0xC3, 0xA9, 1, 0x63, 0x65, 0xCC, 0x81, 2],
      // "a" twice; 1 and "1"; duplicate names within a list next to bytes, which JSON cannot represent.
      [0xA2, 0x61, 0x61, 1, 0x61, 0x61, 2], [0xA2, 1, 1, 0x61, 0x31, 2],
      [0x82, 0xA2, 0x61, 0x61, 1, 0x61, 0x61, 2, 0x41, 7],
    ] as [[UInt8]])
  func names(coded: [UInt8]) throws {
    let scratch = try Scratch()
    let (first, second) = (try scratch.store("first"), try scratch.store("second"))
    let line = #"{"key":"k","type":"cbor","base64":"\#(Base64.encode(coded))"}"#
    try first.succeed("load", "-", input: Array(line.utf8))
    let dump = try first.succeed("dump")
    try second.succeed("load", "-", input: dump.out)
    #expect(try second.succeed("dump").out == dump.out)
    #expect(try second.succeed("get", "k").out == coded)
  }

  @Test("a line too long to be loaded is not dumped, and the key is named")
  func tooLong() throws {
    let scratch = try Scratch()
    let store = try Store.create(at: scratch.path + "/store", name: "store")
    try store.put(Key("a"), Array("short".utf8), type: .string)
    // Each byte takes six characters in the line.
    try store.put(Key("b"), [UInt8](repeating: 1, count: 30), type: .string)
    try store.put(Key("c"), [UInt8](repeating: 65, count: 200), type: .string)
    for (prefix, key) in [("", "b"), ("c", "c")] {
      var lines: [[UInt8]] = []
      let failure = try #require(throws: Failure.self) {
        try LineCommands.lines(of: store.snapshot(), Array(prefix.utf8), limit: 150) { lines.append($0) }
      }
      #expect(failure.code == .usage && failure.message.hasPrefix("dump \(key): "))
      #expect(lines.count == (prefix.isEmpty ? 1 : 0))
    }
    try store.close()
  }

  @Test("generated JSON reads back unchanged")
  func json() throws {
    let seed = UInt64.random(in: 0 ... .max)
    var random = SplitMix(state: seed)
    for _ in 0..<500 {
      let value = Self.value(depth: 4, &random)
      #expect(try JSONParser.parse(value.encoded) == value, "seed \(seed)")
    }
  }

  private static func value(depth: Int, _ random: inout SplitMix) -> JSON {
    switch Int.random(in: 0...(depth > 0 ? 6 : 4), using: &random) {
    case 0: .null
    case 1: .bool(Bool.random(using: &random))
    case 2: .integer(Int64(bitPattern: random.next()))
    case 3: .real(Double(bitPattern: random.next()))
    case 4: .string(text(&random))
    case 5: .array((0..<3).map { _ in value(depth: depth - 1, &random) })
    default:
      .object((0..<3).map { .init(name: "\($0)" + text(&random), value: value(depth: depth - 1, &random)) })
    }
  }

  private static func text(_ random: inout SplitMix) -> String {
    String(
      String.UnicodeScalarView(
        (0..<5).compactMap { _ in Unicode.Scalar(UInt32.random(in: 0...0x10FFFF, using: &random)) }))
  }

  @Test(
    "text that is not JSON is refused with the reason",
    arguments: [
      "", "{", "[1,]", "{\"a\":1,}", "01", "-", "1.", "1e", "\"\\x\"", "\"\\ud800\"", "\"a", "nul", "1 2",
      "{\"a\":1,\"a\":2}",
      "\"\u{1}\"", "// no comments here\n1", String(repeating: "[", count: 100),
    ])
  func refused(text: String) {
    #expect(throws: JSONFailure.self) { try JSONParser.parse(Array(text.utf8)) }
  }

  @Test("comments are accepted only where they are enabled")
  func comments() throws {
    let text = "// first\n{ /* second */ \"a\": [1, /**/ 2] // third\n}"
    #expect(try JSONParser.parse(Array(text.utf8), comments: true) == ["a": [1, 2]])
    #expect(throws: JSONFailure(reason: "a comment has no end", place: TextPlace(line: 1, column: 3))) {
      try JSONParser.parse(Array("1 /* x".utf8), comments: true)
    }
  }

  @Test("base64 decodes exactly what it encodes", arguments: 0...70)
  func base64(count: Int) {
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 37 + count) }
    #expect(Base64.decode(Base64.encode(bytes)) == bytes)
  }

  @Test("base64 agrees with RFC 4648 and refuses everything else")
  func base64Vectors() {
    #expect(Base64.encode(Array("foobar".utf8)) == "Zm9vYmFy")
    #expect(Base64.encode(Array("foob".utf8)) == "Zm9vYg==")
    for text in ["Zg", "Zg=", "Zh==", "Z===", "Zm9=Zm9v", "Zm 9", "====", "Zm9vYh=="] {
      #expect(Base64.decode(text) == nil)
    }
  }
}

/// SplitMix64 by Sebastiano Vigna.
struct SplitMix: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var word = state
    word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
    return word ^ word >> 31
  }
}

import SyncStore
import Testing

@testable import sync_cli

/// Values of all types on the command line.
@Suite struct TypeTests {
  @Test(
    "each type is written, shown and listed",
    arguments: [
      ("uint", "18446744073709551615", "18446744073709551615"), ("float", "0.1", "0.1"),
      ("date", "1.5", "1.5"),
      ("date", "1700000000.123456789", "1700000000.123456789"), ("date", "-0.250000000", "-0.250000000"),
      ("uuid", "00112233-4455-6677-8899-AABBCCDDEEFF", "\"00112233-4455-6677-8899-aabbccddeeff\""),
      ("cbor", #"{"a":[1,-2,2.5,null,true,"é"],"b":{}}"#, #"{"a":[1,-2,2.5,null,true,"é"],"b":{}}"#),
      ("cbor", "18446744073709551615", "18446744073709551615"),
      ("cbor", "-18446744073709551616", "-18446744073709551616"),
    ])
  func types(type: String, written: String, shown: String) throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "k", "--type", type, "--", written)
    #expect(
      try tool.succeed("get", "k", "--json").text
        .hasPrefix("{\"key\":\"k\",\"value\":\(shown),\"type\":\"\(type)\","))
    #expect(try tool.succeed("list", "--long").text.hasPrefix(type + " "))
    let line = try #require(try tool.succeed("list", "--long").lines.first)
    #expect(line.split(separator: " ").count == 4, "\(line)")
  }

  @Test(
    "a value that does not match its type is refused",
    arguments: [
      ("uint", "-1"), ("uint", "18446744073709551616"), ("float", "x"), ("uuid", "00112233"), ("cbor", "{"),
      ("cbor", "1e999"), ("cbor", "36893488147419103232"), ("date", "soon"),
      ("uuid", "0011223344-55-6677-8899-AABBCCDDEEFF"),
    ])
  func refused(type: String, written: String) throws {
    let tool = try Scratch().store()
    let result = try tool.run("put", "k", "--type", type, "--", written)
    #expect(result.code == 2)
    #expect(result.err.contains("not of type \(type)"), "\(result.err)")
  }

  @Test("values that JSON cannot represent exactly are displayed, and dumped and loaded as bytes")
  func inexact() throws {
    struct Odd: Codable {
      var data: [UInt8] = [1, 2]
      var part: Float = 0.5
    }
    let scratch = try Scratch()
    let (first, second) = (try scratch.store("first"), try scratch.store("second"))
    let form = try EncodedValue(Odd())
    try first.succeed(
      "load", "-",
      input: Array(#"{"key":"k","type":"cbor","base64":"\#(Base64.encode(form.bytes))"}"#.utf8))
    try first.succeed("put", "date", "--type", "date", "0.123456789")
    try first.succeed("load", "-", input: Array(#"{"key":"double","type":"date","value":0.1234567890}"#.utf8))
    try first.succeed("put", "exact", "--type", "cbor", "[1.0,1]")
    let dump = try first.succeed("dump")
    #expect(dump.text.contains(#""shown":{"data":"AQI=","part":0.5}"#), "\(dump.text)")
    #expect(dump.text.contains(#""value":[1.0,1]"#), "\(dump.text)")
    try second.succeed("load", "-", input: dump.out)
    #expect(try second.succeed("dump").out == dump.out)
    #expect(try first.succeed("why", "exact").text.contains("[1.0,1] of cbor"))
  }
}

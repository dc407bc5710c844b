import Foundation
import SyncStore
import SyncStoreFoundation
import SyncTestSupport
import Testing

@testable import sync_cli

/// Objects that a program stores, on the command line, and the other way round.
@Suite("Objects of a program, on the command line") struct ObjectTests {
  private struct Settings: Codable, Equatable {
    var interval = 60
    var unit = "celsius"
    var thresholds: [Double] = [2.5, 8]
    var note: String?
  }

  /// With properties that JSON lacks.
  private struct Visit: Codable, Equatable {
    var id = UUID(uuidString: "00112233-4455-6677-8899-AABBCCDDEEFF")
    var began = Date(timeIntervalSince1970: 1_700_000_000.5)
    var ended = Date(timeIntervalSinceReferenceDate: 0.1)
    var photo = Data([1, 2, 3])
    var weight: Float = 0.1
    var limit = -Double.infinity
    var rooms = ["a": [1, 2]]
  }

  private struct Order: Codable, Identifiable, Equatable {
    let id: Int
    var customer: String
  }

  private static let visitLine =
    #"{"id":{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"},"began":{"$date":1700000000.5},"#
    + #""ended":{"$date":978307200.100000000},"photo":{"$bytes":"AQID"},"weight":{"$float":0.1},"#
    + #""limit":{"$double":"-inf"},"rooms":{"a":[1,2]}}"#

  /// Opens the store of a tool as a program does, in shared mode.
  private static func with<Result>(_ tool: Tool, _ body: (Store) throws -> Result) throws -> Result {
    let store = try Store.open(at: tool.store, configuration: Configuration(mode: .shared))
    defer { try? store.close() }
    return try body(store)
  }

  /// The value that a program reads.
  private static func read<Value: Decodable>(_ tool: Tool, _ key: Key, as type: Value.Type) throws -> Value? {
    try with(tool) { try $0.get(key, as: type) }
  }

  @Test("an object that a program wrote is read as JSON, and one that `put --type cbor` wrote is read by it")
  func plain() throws {
    let tool = try Scratch().store()
    try Self.with(tool) { try $0.put("settings", Settings()) }
    let shown = #"{"interval":60,"unit":"celsius","thresholds":[2.5,8.0]}"#
    #expect(try tool.succeed("get", "settings", "--text").text == shown + "\n")
    let line = try tool.succeed("get", "settings", "--json").text
    #expect(line.hasPrefix(#"{"key":"settings","value":\#(shown),"type":"cbor","#), "\(line)")
    #expect(!line.contains("exact"))

    let written = shown.replacing("60", with: "30").replacing("}", with: #","note":null}"#)
    try tool.succeed("put", "settings", "--type", "cbor", "--", written)
    #expect(try Self.read(tool, "settings", as: Settings.self) == Settings(interval: 30))
    // A whole number is none for a `Double`.
    try tool.succeed("put", "settings", "--type", "cbor", "--", written.replacing("8.0", with: "8"))
    let error = #expect(throws: StoreError.self) {
      _ = try Self.read(tool, "settings", as: Settings.self)
    }
    #expect(
      error?.code == .wrongType && error?.message.contains("thresholds") == true, "\(error?.message ?? "")")
  }

  @Test("dates, UUIDs, bytes, floats and infinities in an object are written by marks, and get shows them")
  func marks() throws {
    let tool = try Scratch().store()
    try Self.with(tool) { try $0.put("visit", Visit()) }
    let line = try JSONParser.parse(tool.succeed("get", "visit", "--json").out, comments: false)
    let exact = try #require(line["exact"])
    #expect(String(decoding: exact.encoded, as: UTF8.self) == Self.visitLine)
    #expect(line["value"] == nil && line["base64"] != nil && line["shown"]?["weight"] == .number("0.1"))
    // The line of `get` can be loaded as it is.
    try tool.succeed("load", "-", input: try tool.succeed("get", "visit", "--json").out)

    for words in [["put", "copy", "--type", "cbor", "--", Self.visitLine], ["load", "-"]] {
      let input = #"{"key":"copy","type":"cbor","value":\#(Self.visitLine)}"#
      #expect(try tool.start(words, input: Array(input.utf8)).finish().code == 0)
      #expect(try Self.read(tool, "copy", as: Visit.self) == Visit())
      let bytes = try Self.with(tool) { store in try ["copy", "visit"].map { try store.get(Key($0))?.bytes } }
      #expect(bytes[0] == bytes[1])
    }
    let weight = #"{"$float":"nan"}"#
    try tool.succeed(
      "put", "copy", "--type", "cbor", "--",
      Self.visitLine.replacing(#"{"$float":0.1}"#, with: weight))
    #expect(try Self.read(tool, "copy", as: Visit.self)?.weight.isNaN == true)
    #expect(try tool.succeed("get", "copy", "--json").text.contains(#""weight":\#(weight)"#))
  }

  @Test("edit takes such an object with its marks")
  func editing() throws {
    let tool = try Scratch().store()
    try Self.with(tool) { try $0.put("visit", Visit()) }
    let result = try tool.run("edit", "visit", environment: ["EDITOR": "sed -i s/AQID/AQIDBA==/"])
    #expect(result.code == 0, "\(result.err)")
    #expect(try Self.read(tool, "visit", as: Visit.self)?.photo == Data([1, 2, 3, 4]))
  }

  @Test(
    "a mark without a value of its kind is refused",
    arguments: [
      #"{"$uuid":"0011"}"#, #"{"$date":"soon"}"#, #"{"$bytes":"?"}"#, #"{"$float":true}"#,
      #"[{"$double":"x"}]"#,
    ])
  func invalid(text: String) throws {
    let tool = try Scratch().store()
    let put = try tool.run("put", "k", "--type", "cbor", "--", text)
    #expect(put.code == 2 && put.err.contains("need a value of their kind"), "\(put.err)")
    let load = try tool.run("load", "-", input: Array(#"{"key":"k","type":"cbor","value":\#(text)}"#.utf8))
    #expect(load.code == 2 && load.err.contains("has no value of its kind"), "\(load.err)")
  }

  @Test("an object whose own member is called like a mark is kept as it is")
  func sameName() throws {
    let tool = try Scratch().store()
    for object in [["$uuid": "mine"], ["$date": "1.5"]] {
      try Self.with(tool) { try $0.put("k", object) }
      let line = try JSONParser.parse(tool.succeed("get", "k", "--json").out, comments: false)
      #expect(line["value"] == nil && line["exact"] == nil)
      try tool.succeed("load", "-", input: try tool.succeed("dump", "k").out)
      #expect(try Self.read(tool, "k", as: [String: String].self) == object)
    }
  }

  @Test("scalars of a program have the types that the guide names")
  func scalars() throws {
    let tool = try Scratch().store()
    try Self.with(tool) { store in
      try store.put("int", 42)
      try store.put("double", 1.5)
      try store.put("bool", true)
      try store.put("string", "text")
      try store.put("date", Date(timeIntervalSince1970: 1.5))
      try store.put("uuid", try #require(Visit().id))
      try store.put("bytes", Data([65]))
    }
    for entry in try tool.succeed("list", "--json").lines {
      let line = try JSONParser.parse(Array(entry.utf8), comments: false)
      #expect(line["key"] == line["type"], "\(entry)")
      let key = try #require(line["key"]?.text)
      let text = try tool.succeed("get", key, "--text").text.dropLast()
      try tool.succeed("put", key, "--type", key, "--", String(text))
    }
    #expect(try Self.read(tool, "int", as: Int.self) == 42)
    #expect(try Self.read(tool, "double", as: Double.self) == 1.5)
    #expect(try Self.read(tool, "bool", as: Bool.self) == true)
    #expect(try Self.read(tool, "string", as: String.self) == "text")
    #expect(try Self.read(tool, "date", as: Date.self) == Date(timeIntervalSince1970: 1.5))
    #expect(try Self.read(tool, "uuid", as: UUID.self) == Visit().id)
    #expect(try Self.read(tool, "bytes", as: Data.self) == Data([65]))
  }

  @Test("an element of a collection is read and written under its key, and its index after rebuildIndexes")
  func elements() throws {
    let tool = try Scratch().store()
    let byCustomer = CollectionIndex("customer", \Order.customer)
    try Self.with(tool) { store in
      let orders = try store.collection("orders", of: Order.self, indexes: [byCustomer])
      try orders.insert(Order(id: 42, customer: "Ann"))
    }
    #expect(try tool.succeed("get", "orders/b42", "--text").text == #"{"id":42,"customer":"Ann"}"# + "\n")
    let store = try Store.open(at: tool.store, configuration: Configuration(mode: .shared))
    let orders = try store.collection("orders", of: Order.self, indexes: [byCustomer])
    try tool.succeed("put", "orders/b42", "--type", "cbor", "--", #"{"id":42,"customer":"Bo"}"#)
    #expect(try orders.get(42) == Order(id: 42, customer: "Bo"))
    for customer in ["Ann", "Bo"] { #expect(try orders.all(by: byCustomer, equalTo: customer).isEmpty) }
    try orders.rebuildIndexes()
    #expect(try orders.all(by: byCustomer, equalTo: "Bo").map(\.id) == [42])
    try store.close()
  }
}

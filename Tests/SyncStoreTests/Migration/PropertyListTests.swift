import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Property lists in both formats, as written by another implementation.
@Suite("A property list")
struct PropertyListTests {
  let host = SimulatedHost(encrypted: false)

  static var sample: [String: Any] {
    [
      "text": "a < b & \"c\" ä 日本 🎈", "ascii": "plain", "empty": "", "number": 42, "large": Int64.max,
      "negative": -7,
      "least": Int64.min, "real": 0.1, "yes": true, "no": false, "data": Data([0, 1, 254, 255]),
      "date": Date(timeIntervalSince1970: 1_700_000_000),
      "before": Date(timeIntervalSince1970: -86_400 * 40_000),
      "list": ["x", 1, ["deep": [true, Data([9])]]] as [Any], "many": Array(0..<400),
      "long": String(repeating: "long ", count: 100),
    ]
  }

  static let expected: [String: PropertyList] = [
    "text": .string("a < b & \"c\" ä 日本 🎈"), "ascii": .string("plain"), "empty": .string(""),
    "number": .integer(42),
    "large": .integer(.max), "negative": .integer(-7), "least": .integer(.min), "real": .real(0.1),
    "yes": .bool(true), "no": .bool(false), "data": .data([0, 1, 254, 255]), "date": .date(1_700_000_000),
    "before": .date(-86_400 * 40_000),
    "list": .array([.string("x"), .integer(1), .dictionary(["deep": .array([.bool(true), .data([9])])])]),
    "many": .array((0..<400).map { .integer($0) }), "long": .string(String(repeating: "long ", count: 100)),
  ]

  static func written(_ format: PropertyListSerialization.PropertyListFormat) throws -> [UInt8] {
    Array(try PropertyListSerialization.data(fromPropertyList: sample, format: format, options: 0))
  }

  @Test(
    "in either form is read as written",
    arguments: [PropertyListSerialization.PropertyListFormat.xml, .binary])
  func reading(format: PropertyListSerialization.PropertyListFormat) throws {
    let list = try PropertyList.read(try Self.written(format), path: "/list")
    guard case .dictionary(let found) = list else {
      Issue.record("no dictionary")
      return
    }
    for (key, value) in Self.expected { #expect(found[key] == value, "\(key)") }
    #expect(found.count == Self.expected.count)
  }

  @Test(
    "is imported as keys of a store, with their types",
    arguments: [PropertyListSerialization.PropertyListFormat.xml, .binary])
  func importing(format: PropertyListSerialization.PropertyListFormat) throws {
    try host.storage.replace("/preferences.plist", with: try Self.written(format))
    let store = try Store.create(on: host)
    #expect(
      try store.importAll(fromPropertyListAt: "/preferences.plist", prefix: "p/").imported
        == Self.expected.count)
    #expect(try store.text("p/text") == "a < b & \"c\" ä 日本 🎈" && store.entry("p/text")?.type == .string)
    #expect(try store.get("p/negative")?.bytes == [0xF9] + [UInt8](repeating: 0xFF, count: 7))
    #expect(try store.entry("p/negative")?.type == .int && store.entry("p/yes")?.type == .bool)
    #expect(try store.get("p/data")?.bytes == [0, 1, 254, 255] && store.entry("p/date")?.type == .date)
    let date = try #require(try store.get("p/date")?.bytes).reversed().reduce(0) { $0 << 8 | UInt64($1) }
    #expect(Double(bitPattern: date) == 1_700_000_000)
    #expect(
      try store.text("p/list") == #"["x",1,{"deep":[true,"CQ=="]}]"# && store.entry("p/list")?.type == .json)
    let many = try #require(try store.text("p/many"))
    #expect(try JSONSerialization.jsonObject(with: Data(many.utf8)) as? [Int] == Array(0..<400))
    try host.storage.replace(
      "/array.plist",
      with: Array(try PropertyListSerialization.data(fromPropertyList: [1], format: format, options: 0)))
    #expect(
      #expect(throws: StoreError.self) { try store.importAll(fromPropertyListAt: "/array.plist") }?.code
        == .foreignFile)
  }

  @Test("handwritten XML is read: comments, CDATA, entities, hex, blanks, a custom document type")
  func handwritten() throws {
    let text = """
      \u{FEFF}<?xml version="1.0"?> <!-- first -->
      <!DOCTYPE plist [ <!ENTITY x "boom"> ]>
      <plist version = "1.0" >
        <dict >
          <key>a</key><string><![CDATA[<raw> & ]]>&#x41;&#66;&apos;<!-- not this --></string>
          <key>b</key><integer> 0x1F </integer>
          <key></key><array/>
          <key>c</key><true></true>
          <key/><data>
            AQID
            BA==
          </data>
        </dict>
      </plist>
      """
    let list = try PropertyList.read(Array(text.utf8), path: "/list")
    #expect(
      list
        == .dictionary([
          "a": .string("<raw> & AB'"), "b": .integer(31), "": .data([1, 2, 3, 4]), "c": .bool(true),
        ]))
    for wrong in [
      "", "<plist>", "<plist><dict></plist>", "<plist><string>&x;</string></plist>",
      "<plist><integer>1.5</integer></plist>", "<plist><integer>-9223372036854775809</integer></plist>",
      "<plist><dict><string/></dict></plist>", "<plist><set/></plist>", "<plist><data>A</data></plist>",
      "<plist><date>2024-13-01T00:00:00Z</date></plist>", "<plist><string>a<b/></string></plist>", "plist",
      String(repeating: "<array>", count: 100),
    ] {
      #expect(
        #expect(throws: StoreError.self, "\(wrong)") { try PropertyList.read(Array(wrong.utf8), path: "/") }?
          .code == .foreignFile)
    }
  }

  @Test(
    "damaged or malicious binary lists are an error and nothing worse",
    arguments: 0..<40 as Range<UInt64>)
  func damaged(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let whole = try Self.written(.binary)
    for _ in 0..<200 {
      var bytes = whole
      for _ in 0..<Int(random.next() % 4 + 1) {
        // The offset table and the trailer get most of the tries.
        let place =
          random.next() % 2 == 0
          ? bytes.count - 1 - Int(random.next() % 600) : Int(random.next() % UInt64(bytes.count))
        bytes[max(place, 0)] = UInt8(truncatingIfNeeded: random.next())
      }
      if random.next() % 4 == 0 { bytes.removeLast(Int(random.next() % 100)) }
      do throws(StoreError) { _ = try PropertyList.read(bytes, path: "/list") } catch {
        #expect(error.code == .foreignFile)
      }
    }
    // An array that contains itself: 0xA1, and the index of the array.
    let loop =
      Array("bplist00".utf8) + [0xA1, 0x00, 0x08] + [UInt8](repeating: 0, count: 6) + [1, 1]
      + [0, 0, 0, 0, 0, 0, 0, 1] + [UInt8](repeating: 0, count: 8) + [0, 0, 0, 0, 0, 0, 0, 10]
    #expect(
      #expect(throws: StoreError.self) { try PropertyList.read(loop, path: "/loop") }?.message.contains(
        "too deep") == true)
  }

  @Test("integers above the signed 64-bit range are preserved, in either form")
  func unsigned() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host)
    for format in [PropertyListSerialization.PropertyListFormat.xml, .binary] {
      let list: [String: Any] = ["large": UInt64.max, "first": UInt64(Int64.max) + 1, "least": Int64.min]
      let bytes = try PropertyListSerialization.data(fromPropertyList: list, format: format, options: 0)
      let read = try PropertyList.read(Array(bytes), path: "/list")
      #expect(
        read
          == .dictionary([
            "large": .unsigned(.max), "first": .unsigned(1 << 63), "least": .integer(.min),
          ]))
      guard case .dictionary(let entries) = read, let large = entries["large"] else { continue }
      try store.put("large", large.encoded.bytes, type: large.encoded.type)
      #expect(try store.get("large", as: UInt64.self) == .max)
    }
  }
}

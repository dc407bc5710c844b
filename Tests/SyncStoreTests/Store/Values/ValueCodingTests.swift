import Foundation
import SyncStoreFoundation
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Encoded values")
struct ValueCodingTests {
  func again<Content: Codable>(_ value: Content) throws -> Content {
    try EncodedValue(value).decoded(as: Content.self)
  }

  /// The error code of decoding.
  func code<Content: Decodable>(_ form: EncodedValue, as _: Content.Type) -> StoreError.Code? {
    do throws(StoreError) {
      _ = try form.decoded(as: Content.self)
      return nil
    } catch { return error.code }
  }

  @Test(
    "random values are the same after a round trip, and equal ones have equal bytes",
    arguments: 0..<200 as Range<UInt64>)
  func roundTrip(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let value = Everything(&random)
    let form = try EncodedValue(value)
    #expect(form.type == .cbor)
    let read = try form.decoded(as: Everything.self)
    #expect(read == value, "seed \(seed)")
    #expect(try EncodedValue(read) == form, "seed \(seed)")
  }

  @Test("classes, superclasses, empty types, optionals and dictionaries with any key are encoded")
  func shapes() throws {
    let dog = try again(Dog(name: "Rex", age: 3, tricks: ["sit"]))
    #expect((dog.name, dog.age, dog.tricks[0]) == ("Rex", 3, "sit"))
    struct Empty: Codable, Equatable {}
    #expect(try again(Empty()) == Empty())
    #expect(try EncodedValue(Empty()).bytes == [0xA0])
    #expect(try again([Empty(), Empty()]).count == 2)
    #expect(try again(Int?.none) == nil)
    #expect(try again([nil, 1, nil] as [Int?]) == [nil, 1, nil])
    #expect(try again([Address(street: "a", lines: [], coordinates: nil): 1]).count == 1)
    #expect(try again(Set([1, 2, 3])) == [1, 2, 3])
    #expect(try again([[["x"]]]) == [[["x"]]])
    #expect(try again((0..<300).map { Int8(truncatingIfNeeded: $0) }).count == 300)
    #expect(try again([Level.high: 1]) == [.high: 1])
  }

  @Test("a value that is one number, text or Boolean has that type, whatever wraps it")
  func singleValues() throws {
    #expect(try EncodedValue(Level.low) == EncodedValue(bytes: Array("low".utf8), type: .string))
    #expect(try EncodedValue(Int?.some(-2)) == EncodedValue(-2))
    #expect(try EncodedValue(-2).bytes == [0xFE] + [UInt8](repeating: 0xFF, count: 7))
    #expect(try EncodedValue(true) == EncodedValue(bytes: [1], type: .bool))
    #expect(try EncodedValue(UInt8(7)) == EncodedValue(7))
    #expect(try EncodedValue(UInt64.max).type == .uint)
    #expect(try EncodedValue(Float(1)).bytes == [0, 0, 0x80, 0x3F])
    #expect(try EncodedValue(1.5).type == .double)
    #expect(try EncodedValue([UInt8]([1, 2])) == EncodedValue(bytes: [1, 2], type: .bytes))
    for value in [Int.min, -1, 0, 23, 24, 255, 256, .max] { #expect(try again(value) == value) }
    for value in [UInt64.max, 0, 1 << 63] { #expect(try again(value) == value) }
    #expect(try again(Level.middle) == .middle)
    #expect(try again(-Double.infinity) == -.infinity)
    #expect(try again(Double.nan).isNaN)
    #expect(try again("") == "")
  }

  @Test("data, dates and UUIDs have their own types, alone and nested, and lose nothing")
  func foundation() throws {
    struct Event: Codable, Equatable {
      var id: UUID
      var at: Date
      var payload: Data
      var last: Date?
    }
    var random = SplitMix64(seed: 5)
    for number in 0..<500 {
      let at = Date(timeIntervalSince1970: 1e9 + Double(random.next() % (1 << 50)) / 1_234_567)
      let event = Event(
        id: UUID(), at: at, payload: Data(random.bytes(number % 40)), last: number % 2 == 0 ? nil : Date())
      #expect(try again(event) == event)
      #expect(try again(at) == at)
      #expect(try again(event.id) == event.id)
    }
    for date in [
      Date.distantPast, .distantFuture, Date(timeIntervalSince1970: -0.25), .init(timeIntervalSince1970: 0),
    ] {
      #expect(try again(date) == date)
    }
    #expect(try EncodedValue(Date(timeIntervalSince1970: 2)).type == .date)
    #expect(try EncodedValue(Data([1, 2])) == EncodedValue([UInt8]([1, 2])))
    #expect(try EncodedValue(UUID()).type == .uuid)
    #expect(
      try EncodedValue(bytes: [0, 0, 0, 0, 0, 0, 0xF8, 0x3F], type: .date).decoded(as: Date.self)
        == Date(timeIntervalSince1970: 1.5))
  }

  // MARK: Evolution

  @Test("properties can be added, removed, reordered and made optional")
  func evolution() throws {
    struct First: Codable {
      var id = 1
      var name = "x"
      var gone = ["a", "b"]
      var count = 7
    }
    struct Second: Codable {
      var count: Int64
      var added: String?
      var name: String?
      var id: UInt16
      var nested: Address?
    }
    let second = try EncodedValue(First()).decoded(as: Second.self)
    #expect((second.count, second.added, second.name, second.id) == (7, nil, "x", 1))
    struct Required: Codable {
      var id: Int
      var added: String
    }
    let error = #expect(throws: StoreError.self) { try EncodedValue(First()).decoded(as: Required.self) }
    #expect(error?.code == .wrongType)
    #expect(error?.message.contains("has no \"added\"") == true)
  }

  // MARK: Strictness

  @Test("a wrong type is an error that names the coding path")
  func wrongTypes() throws {
    struct Outer<Inner: Codable>: Codable {
      var a = 1
      var list: [Inner]
    }
    struct Pair<Inner: Codable>: Codable { var value: Inner }
    let form = try EncodedValue(Outer(list: [Pair(value: "1"), Pair(value: "2")]))
    let error = #expect(throws: StoreError.self) { try form.decoded(as: Outer<Pair<Int>>.self) }
    #expect(error?.code == .wrongType)
    #expect(error?.message.contains("list[0].value is text, not a value of type Int") == true)
    #expect(code(form, as: Outer<Pair<Bool>>.self) == .wrongType)
    #expect(code(form, as: [Int].self) == .wrongType)
    #expect(code(form, as: String.self) == .wrongType)
    #expect(code(try EncodedValue("7"), as: Int.self) == .wrongType)
    #expect(code(try EncodedValue(7), as: Double.self) == .wrongType)
    #expect(code(try EncodedValue(7.0), as: Int.self) == .wrongType)
    #expect(code(try EncodedValue(1), as: Bool.self) == .wrongType)
    #expect(code(try EncodedValue("none of them"), as: Level.self) == .wrongType)
    #expect(code(try EncodedValue(Date()), as: Double.self) == .wrongType)
    #expect(code(try EncodedValue([Date()]), as: [Double].self) == .wrongType)
    #expect(code(try EncodedValue([UUID()]), as: [String].self) == .wrongType)
    #expect(code(EncodedValue(bytes: [1], type: .json), as: String.self) == .wrongType)
    #expect(code(EncodedValue(bytes: [1], type: ValueType(rawValue: 200)), as: [UInt8].self) == .wrongType)
  }

  @Test("a number that does not fit is an error, never another number")
  func overflow() throws {
    #expect(try EncodedValue(300).decoded(as: Int16.self) == 300)
    #expect(try EncodedValue(UInt64.max).decoded(as: UInt64.self) == .max)
    for (form, isUnsigned) in [
      (try EncodedValue(300), false), (try EncodedValue(-1), true), (try EncodedValue(UInt64.max), false),
    ] {
      #expect(code(form, as: isUnsigned ? UInt64.self : UInt64.self) == (isUnsigned ? .outOfBounds : nil))
      #expect(code(form, as: UInt8.self) == .outOfBounds)
    }
    struct Narrow: Codable { var value: Int8 }
    struct Wide: Codable { var value: Int }
    let error = #expect(throws: StoreError.self) {
      try EncodedValue(Wide(value: 128)).decoded(as: Narrow.self)
    }
    #expect(error?.code == .outOfBounds)
    #expect(error?.message.contains("value is 128, which Int8 cannot hold") == true)
    #expect(try EncodedValue(Wide(value: -128)).decoded(as: Narrow.self).value == -128)
    #expect(try EncodedValue([0.5]).decoded(as: [Float].self) == [0.5])
    #expect(code(try EncodedValue([0.1]), as: [Float].self) == .outOfBounds)
    #expect(try EncodedValue(Float(0.1)).decoded(as: Double.self) == Double(Float(0.1)))
  }

  @Test("a type that misuses its encoder is an error, not a crash")
  func misuse() throws {
    struct Twice: Encodable {
      func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(1)
        try container.encode(2)
      }
    }
    struct TwoWays: Encodable {
      func encode(to encoder: any Encoder) throws {
        _ = encoder.unkeyedContainer()
        _ = encoder.container(keyedBy: Interleaved.Keys.self)
      }
    }
    final class Endless: Encodable {
      func encode(to encoder: any Encoder) throws {
        var container = encoder.unkeyedContainer()
        try container.encode(self)
      }
    }
    struct Refusing: Encodable {
      struct No: Error {}
      func encode(to encoder: any Encoder) throws { throw No() }
    }
    #expect(#expect(throws: StoreError.self) { try EncodedValue(Twice()) }?.code == .wrongType)
    #expect(#expect(throws: StoreError.self) { try EncodedValue([TwoWays()]) }?.code == .wrongType)
    #expect(#expect(throws: StoreError.self) { try EncodedValue(Endless()) }?.code == .outOfBounds)
    #expect(#expect(throws: StoreError.self) { try EncodedValue(Refusing()) }?.code == .wrongType)
  }

  @Test("values are encoded and decoded by many threads concurrently")
  func atOnce() async throws {
    struct Nested: Encodable {
      var text: String
      func encode(to encoder: any Encoder) throws {
        var container = encoder.unkeyedContainer()
        try container.encode(text)
        try container.encode(try EncodedValue(["inner": text]).bytes)
      }
    }
    final class Keeper: Encodable {
      var kept: (any UnkeyedEncodingContainer)?
      func encode(to encoder: any Encoder) throws {
        var container = encoder.unkeyedContainer()
        try container.encode(1)
        kept = container
      }
    }
    let keeper = Keeper()
    #expect(try EncodedValue(keeper).bytes == [0x81, 1])
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<4 {
        group.addTask {
          for round in 0..<500 {
            let text = "\(number) \(round)"
            let form = try EncodedValue(Nested(text: text))
            let (outer, inner) = (Array(text.utf8), try EncodedValue(["inner": text]).bytes)
            #expect(
              form.bytes == [0x82, 0x60 | UInt8(outer.count)] + outer + [0x40 | UInt8(inner.count)] + inner)
          }
        }
      }
      try await group.waitForAll()
    }
    // Encoder state captured by a value is not shared.
    try? keeper.kept?.encode("late")
    #expect(try EncodedValue([1]).bytes == [0x81, 1])
  }

  // MARK: Untrusted bytes

  @Test("every truncation of a value, and every trailing byte, is an error")
  func truncations() throws {
    var random = SplitMix64(seed: 3)
    var value = Everything(&random)
    value.bytes = [1, 2, 3]
    let form = try EncodedValue(value)
    for count in 0..<form.bytes.count {
      #expect(
        code(EncodedValue(bytes: Array(form.bytes[..<count]), type: .cbor), as: Everything.self)
          == .malformedValue)
    }
    #expect(code(EncodedValue(bytes: form.bytes + [0], type: .cbor), as: Everything.self) == .malformedValue)
  }

  @Test(
    "flipped bits and random bytes give a value or an error, in little memory",
    arguments: 0..<40 as Range<UInt64>)
  func hostile(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    var value = Everything(&random)
    value.bytes = [1, 2, 3]
    let form = try EncodedValue(value)
    for _ in 0..<300 {
      var bytes = form.bytes
      for _ in 0...(random.next() % 4) {
        bytes[Int(random.next() % UInt64(bytes.count))] ^= 1 << UInt8(random.next() % 8)
      }
      _ = code(EncodedValue(bytes: bytes, type: .cbor), as: Everything.self)
    }
    for type in 0..<12 as Range<UInt8> {
      for _ in 0..<50 {
        let form = EncodedValue(bytes: random.bytes(Int(random.next() % 24)), type: ValueType(rawValue: type))
        _ = code(form, as: Everything.self)
        _ = code(form, as: Address.self)
        _ = code(form, as: [String].self)
        _ = code(form, as: Int.self)
        _ = code(form, as: Date.self)
        _ = code(form, as: Data.self)
      }
    }
  }

  @Test("counts that exceed the bytes, and excessive depths, are refused before anything is allocated")
  func bounds() throws {
    func cbor(_ bytes: [UInt8]) -> EncodedValue { EncodedValue(bytes: bytes, type: .cbor) }
    let huge = [UInt8](repeating: 0xFF, count: 8)
    for first in [0x5B, 0x7B, 0x9B, 0xBB] as [UInt8] {
      #expect(code(cbor([first] + huge), as: [Int].self) == .malformedValue)
      #expect(
        code(cbor([first] + [0, 0, 0, 0, 0x7F, 0, 0, 0, 0]), as: [String: Int].self) == .malformedValue)
    }
    let deep = [UInt8](repeating: 0x81, count: 100_000) + [0]
    #expect(code(cbor(deep), as: [Int].self) == .outOfBounds)
    #expect(code(cbor([UInt8](repeating: 0xC1, count: 1000) + [0]), as: Date.self) == .outOfBounds)
    let level64 = [UInt8](repeating: 0x81, count: Limits.codedValueDepth) + [0]
    #expect(code(cbor(level64), as: [[Int]].self) == .wrongType)
    for bytes in [[0x9F, 0xFF], [0x1C], [0xF8, 0x20], [0xFF], [0x61, 0xFF]] as [[UInt8]] {
      #expect(code(cbor(bytes), as: String.self) == .malformedValue)
    }
    #expect(code(EncodedValue(bytes: [2], type: .bool), as: Bool.self) == .malformedValue)
    #expect(code(EncodedValue(bytes: [2], type: .int), as: Int.self) == .malformedValue)
    #expect(code(EncodedValue(bytes: [0xFF], type: .string), as: Level.self) == .malformedValue)
    #expect(code(EncodedValue(bytes: [1, 2, 3], type: .uuid), as: UUID.self) == .malformedValue)
  }

  /// Nested arrays.
  indirect enum Nest: Codable, Equatable, Sendable {
    case more(Nest), numbers([Int]), date(Date), end

    init(_ depth: Int, _ leaf: Nest) { self = depth == 0 ? leaf : .more(Nest(depth - 1, leaf)) }

    init(from decoder: any Decoder) throws {
      var array = try decoder.unkeyedContainer()
      switch try array.decode(Int.self) {
      case 0: self = .more(try array.decode(Nest.self))
      case 1: self = .numbers(try array.decode([Int].self))
      case 2: self = .date(try array.decode(Date.self))
      default: self = .end
      }
    }

    func encode(to encoder: any Encoder) throws {
      var array = encoder.unkeyedContainer()
      switch self {
      case .more(let nest):
        try array.encode(0)
        try array.encode(nest)
      case .numbers(let numbers):
        try array.encode(1)
        try array.encode(numbers)
      case .date(let date):
        try array.encode(2)
        try array.encode(date)
      case .end: try array.encode(3)
      }
    }
  }

  @Test(
    "every accepted value can be read: the maximum depth is the same for writer and reader",
    arguments: [
      Nest.end, .numbers([1]), .date(Date(timeIntervalSince1970: 1)),
      .date(Date(timeIntervalSinceReferenceDate: 123.456789012)),
    ])
  func deepest(leaf: Nest) throws {
    var accepted = 0
    for depth in 55..<70 {
      let value = Nest(depth, leaf)
      guard let form = try? EncodedValue(value) else { continue }
      accepted += 1
      #expect(try form.decoded(as: Nest.self) == value, "depth \(depth)")
    }
    #expect(accepted > 5 && accepted < 15)
  }

  @Test("every accepted value can be read: an array that is too large is refused, a text of that size is not")
  func largest() throws {
    let part = String(repeating: "x", count: 1 << 20)
    let list = [String](repeating: part, count: 65)
    #expect(#expect(throws: StoreError.self) { try EncodedValue(list) }?.code == .outOfBounds)
    let text = String(repeating: part, count: 65)
    #expect(try again(text) == text)
    let data = Data(repeating: 7, count: 65 << 20)
    #expect(try again(data) == data)
  }

  @Test("a type that continues after a failed part is refused, not stored in part")
  func swallowed() throws {
    struct Part: Encodable {
      func encode(to encoder: any Encoder) throws { throw StoreError(.wrongType, "cannot be coded") }
    }
    struct Whole: Encodable {
      enum Keys: CodingKey { case first, part }
      func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(1, forKey: .first)
        try? container.encode(Part(), forKey: .part)
      }
    }
    #expect(throws: StoreError.self) { try EncodedValue(Whole()) }
    #expect(throws: StoreError.self) { try EncodedValue([Whole()]) }
  }
}

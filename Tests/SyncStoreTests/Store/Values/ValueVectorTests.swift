import Foundation
import SyncStoreFoundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// `schemas/values.md`, byte by byte.
@Suite("Golden vectors of values")
struct ValueVectorTests {
  struct Vectors: Decodable {
    struct Form: Decodable {
      var name: String
      var type: String
      var bytes: String
    }
    struct Component: Decodable {
      var type: String
      var value: String
      var key: String
    }
    var values: [Form]
    var read: [Form]
    var malformed: [String]
    var components: [Component]
  }

  let vectors: Vectors

  init() throws {
    vectors = try Checkout.vector("values.json")
  }

  struct Sample: Codable, Equatable {
    var id: Int
    var name: String
    var maybe: Bool?
    var nothing: String?
    var ratio: Double
    var part: Float
    var bytes: [UInt8]
    var list: [Int]
    var table: [String: UInt64]
    var at: Date
    var exact: Date
    var uuid: UUID
    var payment: Payment
  }

  static let uuid = UUID(
    uuid: (0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF))
  /// Seconds since 2001 that take all 53 bits: since 1970 they do not fit.
  static let exactDate = Date(timeIntervalSinceReferenceDate: 600_000_000.1)
  static let sample = Sample(
    id: -500, name: "Zoë", maybe: true, nothing: nil, ratio: 1.5, part: -0.25, bytes: [1, 2, 255],
    list: [0, 23, 24, 255, 256, 65_536, 4_294_967_296, -1], table: ["b": 1, "aa": .max, "a": 3],
    at: Date(timeIntervalSince1970: 1_700_000_000.5), exact: exactDate, uuid: uuid,
    payment: .card(number: "4", month: 7))

  /// The formats of all names in the vectors.
  static func forms() throws -> [String: EncodedValue] {
    [
      "true": try EncodedValue(true), "minus two": try EncodedValue(Int8(-2)), "300": try EncodedValue(300),
      "largest": try EncodedValue(UInt64.max), "half": try EncodedValue(0.5),
      "single half": try EncodedValue(Float(0.5)),
      "text": try EncodedValue("Zoë"), "raw value": try EncodedValue(Level.high),
      "data": try EncodedValue(Data([0, 255])),
      "date": try EncodedValue(Date(timeIntervalSince1970: 1.5)), "exact date": try EncodedValue(exactDate),
      "uuid": try EncodedValue(uuid), "null": try EncodedValue(Int?.none),
      "texts": try EncodedValue(["a", ""]),
      "object": try EncodedValue(sample),
    ]
  }

  @Test("encoding gives the vectors, and they are read back")
  func written() throws {
    let forms = try Self.forms()
    for vector in vectors.values {
      let form = try #require(forms[vector.name], "\(vector.name)")
      #expect(form.type.description == vector.type, "\(vector.name)")
      #expect(Hex.string(of: form.bytes) == vector.bytes, "\(vector.name)")
    }
    #expect(Set(vectors.values.map(\.name)) == Set(forms.keys))
    #expect(try #require(forms["object"]).decoded(as: Sample.self) == Self.sample)
    #expect(try #require(forms["exact date"]).decoded(as: Date.self) == Self.exactDate)
  }

  @Test("valid values of other implementations are read")
  func read() throws {
    func bytes(_ name: String) throws -> EncodedValue {
      guard let vector = vectors.read.first(where: { $0.name == name }),
        let type = ValueType(name: vector.type),
        let bytes = Hex.bytes(of: vector.bytes)
      else { throw StoreError(.outOfBounds, "no vector \(name)") }
      return EncodedValue(bytes: bytes, type: type)
    }
    #expect(try bytes("long forms").decoded(as: [Int].self) == [1, 2, -3])
    #expect(
      try bytes("half floats").decoded(as: [Double].self) == [1, -2, 65_504, 5.960464477539063e-8, .infinity])
    #expect(try bytes("bytes as integers").decoded(as: Data.self) == Data([1, 255]))
    #expect(try bytes("integers as bytes").decoded(as: [Int].self) == [1, 255])
    #expect(try bytes("whole seconds").decoded(as: [Date].self) == [Date(timeIntervalSince1970: 1_000_000)])
    #expect(try bytes("unknown within").decoded(as: [String: Int?].self)["a"] == .some(nil))
    struct Known: Decodable { var id: Int }
    #expect(try bytes("unknown keys").decoded(as: Known.self).id == 7)
    #expect(vectors.read.count == 7)
  }

  @Test("malformed values are refused")
  func malformed() throws {
    for hex in vectors.malformed {
      let form = EncodedValue(bytes: try #require(Hex.bytes(of: hex)), type: .cbor)
      let error = #expect(throws: StoreError.self, "\(hex)") { try form.decoded(as: [Int].self) }
      #expect(error?.code == .malformedValue, "\(hex)")
    }
    #expect(vectors.malformed.count > 10)
  }

  @Test("keys are composed as in the vectors")
  func components() throws {
    for vector in vectors.components {
      let key: [UInt8] =
        switch vector.type {
        case "text": vector.value.keyBytes
        case "int": try #require(Int64(vector.value)).keyBytes
        case "uint": try #require(UInt64(vector.value)).keyBytes
        case "bool": (vector.value == "true").keyBytes
        case "double": try #require(Double(vector.value)).keyBytes
        case "uuid": try #require(UUID(uuidString: vector.value)).keyBytes
        case "date": Date(timeIntervalSince1970: try #require(Double(vector.value))).keyBytes
        default: []
        }
      #expect(String(decoding: key, as: UTF8.self) == vector.key, "\(vector.type) \(vector.value)")
    }
    #expect(vectors.components.count > 10)
  }
}

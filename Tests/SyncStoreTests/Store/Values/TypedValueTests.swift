import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Typed values")
struct TypedValueTests {
  let host = SimulatedHost()

  /// The error code of a call.
  func code(_ body: () throws -> Void) -> StoreError.Code? {
    do { try body() } catch { return (error as? StoreError)?.code }
    return nil
  }

  @Test("each scalar type round-trips, together with its type")
  func scalars() throws {
    let store = try Store.create(on: host)
    func check<Content: ScalarValue & Equatable>(_ values: [Content], _ type: ValueType) throws {
      for value in values {
        try store.put("k", value)
        #expect(try store.get("k", as: Content.self) == value)
        #expect(try store.get("k")?.type == type)
        #expect(try EncodedValue(value) == EncodedValue(bytes: store.get("k")?.bytes ?? [], type: type))
        #expect(try store.get("k")?.decoded(as: Content.self) == value)
        #expect(try store.snapshot().get("k", as: Content.self) == value)
      }
    }
    try check([true, false], .bool)
    try check([Int.min, -1, 0, .max], .int)
    try check([Int8.min, .max], .int)
    try check([Int16.min, .max], .int)
    try check([Int32.min, .max], .int)
    try check([Int64.min, .max], .int)
    try check([UInt8.min, .max], .int)
    try check([UInt16.max], .int)
    try check([UInt32.max], .int)
    try check([UInt64(Int64.max)], .int)
    try check([UInt64.max, 1 << 63], .uint)
    try check([UInt.max], .uint)
    try check([Float.pi, -.infinity, 0], .float)
    try check([Double.pi, -.infinity, .leastNonzeroMagnitude], .double)
    try check(["", "short", "é\u{0}🙂", String(repeating: "long ", count: 9000)], .string)
    try check([[], [0, 255], [UInt8](repeating: 7, count: 50_000)], .bytes)
  }

  @Test("absent differs from present, and a default replaces absent alone")
  func absent() throws {
    let store = try Store.create(on: host)
    #expect(try store.get("k", as: Int.self) == nil)
    #expect(try store.get("k", default: 5) == 5)
    #expect(try store.get("k", default: ["a"]) == ["a"])
    try store.put("k", 0)
    #expect(try store.get("k", default: 5) == 0)
    try store.put("k", Int?.none)
    #expect(try store.get("k", as: Int?.self) == .some(nil))
    try store.put("k", "text")
    #expect(code { _ = try store.get("k", default: 5) } == .wrongType)
    #expect(code { _ = try store.get("k", default: ["a"]) } == .wrongType)
    let error = #expect(throws: StoreError.self) { try store.get("k", as: Bool.self) }
    #expect(error?.message.hasPrefix("key k: the value is text, not a value of type Bool") == true)
    #expect(code { _ = try store.get("k", as: Address.self) } == .wrongType)
    try store.delete("k")
    #expect(try store.get("k", as: String.self) == nil)
  }

  @Test("a number is read as any type that can represent it, and as no other")
  func widths() throws {
    let store = try Store.create(on: host)
    try store.put("k", Int8(-5))
    #expect(try store.get("k", as: Int64.self) == -5)
    #expect(code { _ = try store.get("k", as: UInt.self) } == .outOfBounds)
    try store.put("k", 256)
    #expect(try store.get("k", as: UInt16.self) == 256)
    #expect(code { _ = try store.get("k", as: UInt8.self) } == .outOfBounds)
    try store.put("k", 0.1)
    #expect(code { _ = try store.get("k", as: Float.self) } == .outOfBounds)
    try store.put("k", [UInt8]([1, 2]), type: .double)
    #expect(code { _ = try store.get("k", as: Double.self) } == .malformedValue)
  }

  @Test("literals of bytes stay bytes")
  func literals() throws {
    let store = try Store.create(on: host)
    try store.put("k", [1, 2, 3])
    #expect(try store.get("k") == Value(bytes: [1, 2, 3], type: .bytes, deadline: nil))
    try store.put("k", [1, 2, 3] as [Int])
    #expect(try store.get("k")?.type == .cbor)
    #expect(try store.get("k", as: [Int].self) == [1, 2, 3])
  }

  @Test("objects of any size are put, read, compared and kept in transactions and snapshots")
  func objects() throws {
    let store = try Store.create(on: SimulatedHost(encrypted: false))
    var address = Address(street: "Main", lines: ["a", "b"], coordinates: [1, 2])
    try store.put("k", address, expiration: nil, durability: .relaxed)
    #expect(try store.get("k", as: Address.self) == address)
    let snapshot = try store.snapshot()
    #expect(try !store.putIfChanged("k", address))
    address.lines = (0..<20_000).map { "line \($0)" }
    #expect(try store.putIfChanged("k", address))
    #expect(try store.entry("k")?.blob != nil)
    #expect(try store.get("k", as: Address.self) == address)
    #expect(try snapshot.get("k", as: Address.self)?.lines == ["a", "b"])
    #expect(try snapshot.get("other", default: 3) == 3)
    #expect(try store.put("n", 1, expecting: .absent) != nil)
    #expect(try store.put("n", 2, expecting: .value(try EncodedValue(7).bytes)) == nil)
    #expect(try store.put("n", 2, expecting: .value(try EncodedValue(1).bytes)) != nil)
    try store.transaction { transaction in
      #expect(try transaction.get("n", as: Int.self) == 2)
      try transaction.put("n", 3)
      #expect(try transaction.get("n", default: 0) == 3)
      #expect(try !transaction.putIfChanged("n", 3))
      #expect(try transaction.put("n", 4, expecting: .absent) == nil)
      try transaction.put("address", Address(street: "x", lines: [], coordinates: nil))
      #expect(try transaction.get("address", as: Address.self)?.street == "x")
      #expect(code { _ = try transaction.get("n", as: String.self) } == .wrongType)
    }
    #expect(try store.get("n", as: Int.self) == 3)
  }

  @Test("typed values expire, survive the process, and are readable when encrypted")
  func lifetime() throws {
    let host = SimulatedHost(encrypted: true)
    let store = try Store.create(on: host)
    try store.put("short", 7, expiration: .at(host.time + 10))
    try store.put("long", Address(street: "s", lines: ["l"], coordinates: nil))
    try store.put("flag", true)
    host.time += 10
    #expect(try store.get("short", as: Int.self) == nil)
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try again.get("long", as: Address.self)?.lines == ["l"])
    #expect(try again.get("flag", as: Bool.self) == true)
  }
}

import Foundation
import SyncStoreFoundation
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Keys of collections")
struct KeyComponentTests {
  /// Whether the bytes sort like the values, and are equal only for equal values.
  func check<Value: KeyComponent & Comparable>(_ values: [Value], seed: UInt64 = 0) {
    for left in values {
      for right in values {
        let (one, other) = (left.keyBytes, right.keyBytes)
        #expect((left < right) == one.lexicographicallyPrecedes(other), "seed \(seed): \(left), \(right)")
        #expect((left == right) == (one == other), "seed \(seed): \(left), \(right)")
        #expect(one.first != 0xFF)
      }
    }
  }

  @Test("integers of all widths are in the order of their values", arguments: 0..<5 as Range<UInt64>)
  func integers(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    check(
      (0..<60).map { _ in Int(truncatingIfNeeded: random.next() >> (random.next() % 64)) } + [
        .min, -1, 0, 1, .max,
      ], seed: seed)
    check(
      (0..<60).map { _ in -Int(truncatingIfNeeded: random.next() >> (1 + random.next() % 63)) }, seed: seed)
    check((0..<60).map { _ in random.next() >> (random.next() % 64) } + [0, .max], seed: seed)
    check([Int8.min, -100, -99, -10, -9, -1, 0, 9, 10, 99, 100, .max])
    #expect(Int8(-7).keyBytes == Int64(-7).keyBytes)
    #expect(UInt16(7).keyBytes == Int(7).keyBytes)
    #expect(
      [42, 0, -1, -10].map { String(decoding: $0.keyBytes, as: UTF8.self) } == ["b42", "a0", "Z8", "Y89"])
    #expect(String(decoding: UInt64.max.keyBytes, as: UTF8.self) == "t18446744073709551615")
  }

  @Test("texts are in the order of their scalar values, which is that of < in NFC")
  func texts() {
    var random = SplitMix64(seed: 9)
    check(
      (0..<80).map { _ in
        String(decoding: random.bytes(Int(random.next() % 5)).map { $0 & 0x7F }, as: UTF8.self)
      })
    check(["", "a", "a\u{0}", "a\u{0}b", "aa", "b", "é", "ö", "中", "\u{FFFD}", "🙂", "🙃"])
    let any = (0..<80).map { _ in
      String(
        String.UnicodeScalarView(
          (0..<3).compactMap { _ in Unicode.Scalar(UInt32(random.next() % 0x11_0000)) }))
    }
    for left in any {
      for right in any {
        #expect(
          left.unicodeScalars.map(\.value).lexicographicallyPrecedes(right.unicodeScalars.map(\.value))
            == left.keyBytes.lexicographicallyPrecedes(right.keyBytes))
      }
    }
  }

  @Test("numbers, Booleans, UUIDs and dates are in the order of their values")
  func others() {
    var random = SplitMix64(seed: 4)
    var numbers: [Double] = [
      -.infinity, -1, -.leastNonzeroMagnitude, 0, .leastNonzeroMagnitude, 0.1, 1, .infinity,
    ]
    for _ in 0..<80 {
      let number = Double(bitPattern: random.next())
      if !number.isNaN { numbers.append(number) }
    }
    check(numbers)
    #expect((-0.0).keyBytes == 0.0.keyBytes)
    #expect(Double.infinity.keyBytes.lexicographicallyPrecedes(Double.nan.keyBytes))
    #expect((-Double.nan).keyBytes == Double.nan.keyBytes)
    check([-.infinity, -1, 0, 0.1, .infinity] as [Float])
    #expect(false.keyBytes.lexicographicallyPrecedes(true.keyBytes))
    check((0..<60).map { _ in UUID() })
    check(
      (0..<80).map { _ in
        Date(timeIntervalSinceReferenceDate: Double(Int64(bitPattern: random.next()) >> 20) / 1024)
      }
        + [.distantPast, .distantFuture, Date(timeIntervalSince1970: -0.5), Date(timeIntervalSince1970: 0)])
  }

  @Test("custom identifiers forward their components")
  func own() throws {
    struct Number: KeyComponent, Codable, Hashable {
      let number: Int
      func appendKeyBytes(to key: inout [UInt8]) { number.appendKeyBytes(to: &key) }
    }
    enum Kind: String, KeyComponent, Codable { case small, large }
    #expect(Number(number: 3).keyBytes == 3.keyBytes)
    #expect(Kind.small.keyBytes == Array("small".utf8))
  }
}

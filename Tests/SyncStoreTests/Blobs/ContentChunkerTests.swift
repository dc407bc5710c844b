import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Content-defined chunks")
struct ContentChunkerTests {
  private func chunks(_ bytes: [UInt8], average: Int = 1024, pieces: [Int] = []) -> [[UInt8]] {
    var chunker = ContentChunker(average: average)
    var ends: [Int] = []
    var start = 0
    for piece in pieces + [bytes.count] where start < bytes.count {
      let end = min(bytes.count, start + piece)
      ends += chunker.feed(bytes[start..<end].span)
      start = end
    }
    if let end = chunker.finish() { ends.append(end) }
    var chunks: [[UInt8]] = []
    for (index, end) in ends.enumerated() {
      chunks.append(Array(bytes[(index == 0 ? 0 : ends[index - 1])..<end]))
    }
    return chunks
  }

  @Test("cover all of the content, none too small and none too large", arguments: [256, 1024, 4096])
  func bounds(average: Int) {
    let bytes = pattern(300_000)
    let all = chunks(bytes, average: average)
    #expect(all.flatMap { $0 } == bytes)
    #expect(all.dropLast().allSatisfy { (average / 4...average * 4).contains($0.count) })
    let mean = bytes.count / all.count
    #expect((average / 2...average * 2).contains(mean), "the mean is \(mean)")
    #expect(chunks([]).isEmpty && chunks([1]) == [[1]])
    #expect(chunks([UInt8](repeating: 0, count: 50_000)).allSatisfy { $0.count <= 4096 })
  }

  @Test("do not depend on how the bytes are split", arguments: 0..<10 as Range<UInt64>)
  func pieces(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let bytes = pattern(60_000, seed: seed)
    let pieces = (0..<200).map { _ in Int(random.next() % 700) }
    #expect(chunks(bytes, pieces: pieces) == chunks(bytes))
  }

  @Test("stay the same except where something was inserted or changed")
  func shifted() {
    let bytes = pattern(500_000)
    let before = Set(chunks(bytes))
    let inserted = chunks(pattern(100, seed: 9) + bytes)
    #expect(inserted.filter { !before.contains($0) }.count <= 3)
    var changed = bytes
    for place in 250_000..<252_000 { changed[place] ^= 0xFF }
    let different = chunks(changed).filter { !before.contains($0) }
    #expect(different.reduce(0) { $0 + $1.count } < 2000 + 6 * 4096)
  }

  @Test("have stable borders: copies of other versions must agree")
  func golden() {
    var chunker = ContentChunker(average: 1024)
    let bytes = (0..<20_000).map { UInt8(truncatingIfNeeded: $0 &* $0 &>> 3) }
    #expect(chunker.feed(bytes.span) == Self.ends)
  }

  private static let ends = [
    1147, 2398, 3729, 4911, 5994, 6251, 7291, 8542, 9873, 11055, 12138, 12395, 13435, 14686, 16017, 17199,
    18282,
    18539, 19579,
  ]

  /// `schemas/vectors/chunker.json`, made by another implementation of `schemas/chunks.md`.
  private struct Vectors: Decodable {
    struct Case: Decodable {
      var content: String
      var seed: UInt64
      var size: Int
      var average: Int
      var ends: [Int]
      var names: [String]
    }
    var gear: [String]
    var cases: [Case]
  }

  @Test("have the borders and hashes of the golden vectors")
  func vectors() throws {
    let vectors = try Checkout.vector("chunker.json", as: Vectors.self)
    // The table's numbers are those of the generator.
    var random = SplitMix64(seed: 1)
    let gear = (0..<256).map { _ in random.next() }
    #expect(vectors.gear == [0, 1, 2, 255].map { String(format: "%016lx", gear[$0]) })
    #expect(vectors.cases.count > 5)
    for vector in vectors.cases {
      var source = SplitMix64(seed: vector.seed)
      var content: [UInt8] = []
      while vector.content == "random", content.count < vector.size {
        let word = source.next()
        content += (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(8 * $0)) }
      }
      content =
        vector.content == "random"
        ? Array(content.prefix(vector.size)) : [UInt8](repeating: 0, count: vector.size)
      let all = chunks(content, average: vector.average)
      var end = 0
      #expect(
        all.map {
          end += $0.count; return end
        } == vector.ends, "\(vector.content) \(vector.size)")
      let names = [all.first, all.last].compactMap { $0 }.map { Hex.string(of: BlobChunk(of: $0).name) }
      #expect(names == vector.names)
    }
  }
}

import Foundation
import SyncTestSupport
import Testing

/// The test model is the model of the design: it yields the same states as another implementation.
@Suite("Golden histories of the model")
struct GoldenModelTests {
  private static let vectors = Checkout.url("schemas/vectors")
  /// Their names, and how many histories they hold.
  private static let files = [("model-histories.txt", 150), ("relay-histories.txt", 102)]

  /// One block of the file.
  private struct Block {
    let history: Model.History
    let steps: String
    let healed: String
    let states: [String]

    init?(_ lines: [Substring]) {
      guard lines.count > 2, let history = Model.History(lines[0]) else { return nil }
      let hashes = lines[1].split(separator: " ").map(String.init)
      guard hashes.count == 2 else { return nil }
      self.history = history
      (steps, healed, states) = (hashes[0], hashes[1], lines[2...].map(String.init))
    }
  }

  private static func blocks(_ file: String) throws -> [Block] {
    let lines = try String(contentsOf: vectors.appending(path: file), encoding: .utf8).split(
      separator: "\n", omittingEmptySubsequences: false)
    return try lines.split(separator: "").map { try #require(Block(Array($0))) }
  }

  /// The rules as they were when the histories were recorded.
  private static var recorded: Model.Rules {
    var rules = Model.Rules()
    (rules.parkedKept, rules.forgetsDamaged, rules.reissuesExpired) = (false, false, false)
    (rules.keepsDoubtful, rules.releasesTogether, rules.givesCovered) = (false, false, false)
    rules.reissuesUnknown = false
    return rules
  }

  @Test("every step of every history ends in the recorded state", arguments: files)
  func replay(file: String, count: Int) throws {
    let blocks = try Self.blocks(file)
    #expect(blocks.count == count)
    for (number, block) in blocks.enumerated() {
      var world = block.history.world(Self.recorded)
      var hash = FNV1a()
      for operation in block.history.operations {
        try world.step(operation)
        try world.checkStep()
        try world.checkRelay()
        for text in world.texts { hash.add(text) }
      }
      #expect(world.texts == block.states, "history \(number)")
      #expect(hash.text == block.steps, "history \(number)")
      try world.heal()
      hash = FNV1a()
      for text in world.texts { hash.add(text) }
      #expect(hash.text == block.healed, "history \(number)")
    }
  }

  @Test("a history round-trips as text", arguments: files)
  func text(file: String, count: Int) throws {
    for block in try Self.blocks(file).prefix(20) {
      let parsed = try #require(Model.History(block.history.description))
      #expect(parsed.operations == block.history.operations)
      #expect(parsed.use == block.history.use)
    }
    #expect(Model.History("anything 2 1;p 0") == nil)
    #expect(Model.History("nothing 2 1") == nil)
    #expect(Model.History("anything 2 1 never;p 0 0 0") == nil)
    #expect(Model.History("anything 2 1 alone;P 0 3") == nil)
  }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
struct FNV1a {
  private var state: UInt64 = 0xcbf2_9ce4_8422_2325

  mutating func add(_ text: String) {
    for byte in text.utf8 { state = (state ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
  }

  /// 16 hex digits.
  var text: String {
    let digits = String(state, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }
}

import Foundation
import SyncTestSupport
import Testing

/// The store conforms to the model of a relay: the same random histories in both, step by step.
@Suite("The store and a relay compared with the model")
struct RelayTwinTests {
  typealias Mixture = Model.History.Mixture

  /// `make relay-twin` sets these; the default is a small sample.
  private static let seeds = UInt64(Setting.number("RELAY_TWIN_SEEDS", 2))
  private static let first = UInt64(Setting.number("RELAY_TWIN_FIRST", 0))

  /// Which copies meet, and what breaks.
  private static let mixtures = [
    Mixture(use: .alone), Mixture(use: .mixed), Mixture(damages: true, use: .alone),
    Mixture(use: .alone, losesEntries: true), Mixture(kind: .clocks, use: .alone),
    Mixture(kind: .selective, use: .alone),
  ]

  @Test("knows the same of the relay, and holds the same, after every step", arguments: mixtures)
  private func calls(mixture: Mixture) async {
    for seed in Self.first..<Self.first + Self.seeds {
      let failure = await Self.onThread { Self.failure(seed: seed, steps: 60, mixture) }
      if let failure { Issue.record("\(mixture), seed \(seed), \(failure)") }
    }
  }

  /// Histories that once found a bug.
  private static let kept:
    [(use: Model.Relay.Use, copies: Int, keys: Int, seed: UInt64, operations: String)] = [
      // A publisher that lost power after its entry was created took its own checkpoint again and again, until
      // the pull gave up.
      (.alone, 2, 2, 46, "p 1 0 0;p 0 1 0;d 1 0;g 1;P 1 1"),
      // A copy that only pushed did not notice that an entry which it had read was gone.
      (.alone, 3, 3, 27, "P 1 0;P 0 0;P 1 0;f 2 2 0;P 2 0;G -1;L 5 1;P 0 0"),
      // A copy did not publish that it covers a write which it had received directly, because that took no
      // position of its journal: it was beaten, or had come before its round was closed.
      (.mixed, 2, 1, 146, "p 1 0 0;P 1 0;p 0 0 0;o 0 1;c 0 1;P 1 0"),
      (.mixed, 4, 3, 227, "p 1 0 0;o 1 2;v 1 2 2;a 2;P 2 0;c 1 2;P 2 0"),
    ]

  @Test("agrees in recorded histories in which it once did not")
  func keptHistories() async {
    for history in Self.kept {
      let operations = history.operations.split(separator: ";").compactMap { Model.Operation($0) }
      let script = Script(
        copies: history.copies, keys: history.keys, seed: history.seed, use: history.use,
        operations: operations)
      let failure = await Self.onThread { script.failure?.text }
      #expect(failure == nil)
    }
  }

  /// Runs `body`, which waits for tasks, on a thread that no task needs.
  private static func onThread<Answer: Sendable>(
    _ body: @escaping @Sendable () -> Answer
  ) async -> Answer {
    await withCheckedContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(returning: body()) }
    }
  }

  /// A history, and the seed of its machine events.
  private struct Script {
    var copies: Int
    var keys: Int
    var seed: UInt64
    var use: Model.Relay.Use
    /// Bytes added to each value.
    var padding = 0
    /// Chance, in percent, that a new member is selective.
    var scopedPercent = 0
    var operations: [Model.Operation] = []

    func twin() throws -> Twin {
      let twin = try Twin(copies: copies, keys: keys, seed: seed)
      (twin.padding, twin.model.scopedPercent) = (padding, scopedPercent)
      try twin.addRelay(use)
      return twin
    }

    /// The error that ends it, and after how many operations.
    var failure: (text: String, steps: Int)? {
      var steps = 0
      do {
        let twin = try twin()
        for operation in operations {
          steps += 1
          try twin.step(operation)
          try twin.model.checkRelay()
        }
        try twin.healThroughRelay()
        return nil
      } catch {
        return ("\(error)", steps)
      }
    }
  }

  /// Plays the history of a seed. On disagreement, finds the shortest history that still disagrees.
  private static func failure(seed: UInt64, steps: Int, _ mixture: Mixture) -> String? {
    var random = SplitMix64(seed: seed)
    // In every third history few entries fill a head: they move to runs, which are collected.
    var script = Script(
      copies: 2 + random.below(3), keys: 1 + random.below(4), seed: seed, use: mixture.use,
      padding: seed % 3 == 2 ? 15_000 : 0, scopedPercent: mixture.kind == .selective ? 60 : 0)
    var chooser = Model.Chooser(mixture, &random)
    do {
      let twin = try script.twin()
      for _ in 0..<steps {
        let operation = chooser.choose(twin.model, &random)
        script.operations.append(operation)
        try twin.step(operation)
        try twin.model.checkRelay()
      }
      try twin.healThroughRelay()
      return nil
    } catch {
      var short = script
      short.operations = Shrinking.shrink(script.operations, simpler: \.simpler) { candidate in
        var script = script
        script.operations = candidate
        return script.failure?.steps
      }
      let text = short.operations.map(\.description).joined(separator: ";")
      return
        "\(short.copies) copies, \(short.keys) keys: \(text)\n\(short.failure?.text ?? "only once: \(error)")"
    }
  }
}

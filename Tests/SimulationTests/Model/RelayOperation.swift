extension Model {
  /// An operation on a relay.
  enum RelayOperation: Hashable {
    /// When a publisher loses power.
    enum PowerLoss: Int {
      case never = 0
      /// After the entry was created, before its publisher learns of it.
      case afterCreation = 1
      /// After the mark became durable, before the entry was created.
      case beforeCreation = 2
    }

    case publish(Int, PowerLoss)
    /// Publishes an entry with a checkpoint.
    case checkpoint(Int)
    /// Reads the next entry of a stream, and closes it; with a count, only so many records of it. Streams are
    /// numbered from 0, modulo their number.
    case fetch(Int, stream: Int, count: Int?)
    /// Reads all that is there, in an order that the deps allow.
    case poll(Int)
    /// Reads a checkpoint, by index modulo their number; -1 is the newest.
    case read(Int, checkpoint: Int)
    /// Collects the garbage that a checkpoint covers.
    case collect(checkpoint: Int)
    /// The relay is put back: a stream loses its last entries.
    case loss(stream: Int, count: Int)
    /// A new, empty member that knows nothing but the relay.
    case newcomer(isScoped: Bool)
  }
}

extension Model.RelayOperation {
  /// An upper-case letter and numbers.
  var coded: (letter: Character, numbers: [Int]) {
    switch self {
    case .publish(let copy, let loss): ("P", [copy, loss.rawValue])
    case .checkpoint(let copy): ("C", [copy])
    case .fetch(let copy, let stream, let count): ("F", [copy, stream, count ?? -1])
    case .poll(let copy): ("A", [copy])
    case .read(let copy, let checkpoint): ("R", [copy, checkpoint])
    case .collect(let checkpoint): ("G", [checkpoint])
    case .loss(let stream, let count): ("L", [stream, count])
    case .newcomer(let isScoped): ("N", [isScoped ? 1 : 0])
    }
  }

  /// Parses `coded`; nil for anything else.
  init?(_ letter: String, _ numbers: [Int]) {
    switch (letter, numbers.count) {
    case ("P", 2):
      guard let loss = PowerLoss(rawValue: numbers[1]) else { return nil }
      self = .publish(numbers[0], loss)
    case ("C", 1): self = .checkpoint(numbers[0])
    case ("F", 3): self = .fetch(numbers[0], stream: numbers[1], count: numbers[2] < 0 ? nil : numbers[2])
    case ("A", 1): self = .poll(numbers[0])
    case ("R", 2): self = .read(numbers[0], checkpoint: numbers[1])
    case ("G", 1): self = .collect(checkpoint: numbers[0])
    case ("L", 2): self = .loss(stream: numbers[0], count: numbers[1])
    case ("N", 1): self = .newcomer(isScoped: numbers[0] == 1)
    default: return nil
    }
  }

  /// The copy involved.
  var copy: Int? {
    switch self {
    case .publish(let copy, _), .checkpoint(let copy), .fetch(let copy, _, _), .poll(let copy),
      .read(let copy, _):
      copy
    case .collect, .loss, .newcomer: nil
    }
  }

  /// Replacements for the operation in a shorter history.
  var simpler: [[Model.RelayOperation]] {
    switch self {
    case .publish(let copy, let loss) where loss != .never: [[.publish(copy, .never)]]
    case .checkpoint(let copy): [[.publish(copy, .never)]]
    case .fetch(let copy, let stream, let count?):
      [[.fetch(copy, stream: stream, count: nil)]]
        + (count > 1 ? [[.fetch(copy, stream: stream, count: 1)]] : [])
    case .poll(let copy): (0..<4).map { [.fetch(copy, stream: $0, count: nil)] }
    case .loss(let stream, let count) where count > 1: [[.loss(stream: stream, count: 1)]]
    case .newcomer(true): [[.newcomer(isScoped: false)]]
    default: []
    }
  }
}

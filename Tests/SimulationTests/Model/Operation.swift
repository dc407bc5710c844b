extension Model {
  /// An operation on a world. One that is not applicable does nothing, so histories can be shrunk freely.
  enum Operation: Hashable {
    /// With a time to live in units; 0 for none.
    case put(Int, key: Int, life: Int)
    case delete(Int, key: Int)
    /// A write stamped by a wrong clock that is corrected at once.
    case future(Int, key: Int, isDelete: Bool)
    case sync(Int)
    /// A power loss: everything that is not durable is lost.
    case crash(Int)
    case open(Int, Int)
    case deliver(Int, Int, count: Int)
    case close(Int, Int)
    case cut(Int, Int)
    /// A whole session.
    case meet(Int, Int)
    case acknowledge(Int)
    case purge(Int)
    case compact(Int)
    case time(Int)
    case skew(Int, Int)
    case away(Int, Bool)
    case backup(Int)
    case restore(Int, which: Int)
    case clone(Int, ofBackup: Bool)
    case join(Int, isScoped: Bool)
    case lose(Int)
    case damage(Int, key: Int)
    /// The machine is rolled back in place: no check at opening can detect it.
    case rollback(Int, which: Int)
    /// A running machine is cloned.
    case duplicate(Int)
    case relay(RelayOperation)
  }
}

extension Model.Operation: CustomStringConvertible {
  /// A letter and numbers: the format in which histories are kept.
  var description: String {
    let (letter, numbers) = coded
    return numbers.reduce(String(letter)) { "\($0) \($1)" }
  }

  private var coded: (Character, [Int]) {
    switch self {
    case .put(let copy, let key, let life): ("p", [copy, key, life])
    case .delete(let copy, let key): ("d", [copy, key])
    case .future(let copy, let key, let isDelete): ("f", [copy, key, isDelete ? 1 : 0])
    case .sync(let copy): ("s", [copy])
    case .crash(let copy): ("x", [copy])
    case .open(let from, let to): ("o", [from, to])
    case .deliver(let from, let to, let count): ("v", [from, to, count])
    case .close(let from, let to): ("c", [from, to])
    case .cut(let from, let to): ("k", [from, to])
    case .meet(let one, let other): ("m", [one, other])
    case .acknowledge(let copy): ("a", [copy])
    case .purge(let copy): ("g", [copy])
    case .compact(let copy): ("z", [copy])
    case .time(let units): ("t", [units])
    case .skew(let copy, let units): ("w", [copy, units])
    case .away(let copy, let isAway): ("y", [copy, isAway ? 1 : 0])
    case .backup(let copy): ("b", [copy])
    case .restore(let copy, let which): ("r", [copy, which])
    case .clone(let copy, let ofBackup): ("n", [copy, ofBackup ? 1 : 0])
    case .join(let copy, let isScoped): ("j", [copy, isScoped ? 1 : 0])
    case .lose(let copy): ("l", [copy])
    case .damage(let copy, let key): ("e", [copy, key])
    case .rollback(let copy, let which): ("q", [copy, which])
    case .duplicate(let copy): ("u", [copy])
    case .relay(let operation): operation.coded
    }
  }

  /// Parses `description`; nil for anything else.
  init?(_ text: some StringProtocol) {
    let words = text.split(separator: " ")
    let numbers = words.dropFirst().compactMap { Int($0) }
    guard let letter = words.first, numbers.count == words.count - 1 else { return nil }
    switch (letter, numbers.count) {
    case ("p", 3): self = .put(numbers[0], key: numbers[1], life: numbers[2])
    case ("d", 2): self = .delete(numbers[0], key: numbers[1])
    case ("f", 3): self = .future(numbers[0], key: numbers[1], isDelete: numbers[2] == 1)
    case ("s", 1): self = .sync(numbers[0])
    case ("x", 1): self = .crash(numbers[0])
    case ("o", 2): self = .open(numbers[0], numbers[1])
    case ("v", 3): self = .deliver(numbers[0], numbers[1], count: numbers[2])
    case ("c", 2): self = .close(numbers[0], numbers[1])
    case ("k", 2): self = .cut(numbers[0], numbers[1])
    case ("m", 2): self = .meet(numbers[0], numbers[1])
    case ("a", 1): self = .acknowledge(numbers[0])
    case ("g", 1): self = .purge(numbers[0])
    case ("z", 1): self = .compact(numbers[0])
    case ("t", 1): self = .time(numbers[0])
    case ("w", 2): self = .skew(numbers[0], numbers[1])
    case ("y", 2): self = .away(numbers[0], numbers[1] == 1)
    case ("b", 1): self = .backup(numbers[0])
    case ("r", 2): self = .restore(numbers[0], which: numbers[1])
    case ("n", 2): self = .clone(numbers[0], ofBackup: numbers[1] == 1)
    case ("j", 2): self = .join(numbers[0], isScoped: numbers[1] == 1)
    case ("l", 1): self = .lose(numbers[0])
    case ("e", 2): self = .damage(numbers[0], key: numbers[1])
    case ("q", 2): self = .rollback(numbers[0], which: numbers[1])
    case ("u", 1): self = .duplicate(numbers[0])
    default:
      guard let operation = Model.RelayOperation(String(letter), numbers) else { return nil }
      self = .relay(operation)
    }
  }

  /// The copies involved.
  var copies: [Int] {
    switch self {
    case .time: []
    case .relay(let operation): operation.copy.map { [$0] } ?? []
    case .open(let one, let other), .close(let one, let other), .cut(let one, let other),
      .meet(let one, let other),
      .deliver(let one, let other, _):
      [one, other]
    case .put(let copy, _, _), .delete(let copy, _), .future(let copy, _, _), .sync(let copy),
      .crash(let copy),
      .acknowledge(let copy), .purge(let copy), .compact(let copy), .skew(let copy, _), .away(let copy, _),
      .backup(let copy), .restore(let copy, _), .clone(let copy, _), .join(let copy, _), .lose(let copy),
      .damage(let copy, _), .rollback(let copy, _), .duplicate(let copy):
      [copy]
    }
  }
}

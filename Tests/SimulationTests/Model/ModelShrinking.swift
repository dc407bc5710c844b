extension Model.History {
  /// The shortest history found that breaks the same invariant.
  func shrunk(_ name: String, _ rules: Model.Rules) -> Model.History {
    func fails(_ operations: [Model.Operation]) -> Int? {
      var candidate = self
      candidate.operations = operations
      guard let found = candidate.play(rules), found.violation.name == name else { return nil }
      return found.steps
    }
    var shrunk = self
    shrunk.operations = Shrinking.shrink(operations, simpler: \.simpler, fails: fails)
    return shrunk
  }
}

/// Delta debugging (Zeller, Hildebrandt 2002) of a list of operations.
enum Shrinking {
  /// The shortest list found for which `fails` still returns a number, the index of the failing operation.
  /// `simpler` gives lists that may replace one operation.
  static func shrink<Operation>(
    _ whole: [Operation], simpler: (Operation) -> [[Operation]] = { _ in [] }, fails: ([Operation]) -> Int?
  ) -> [Operation] {
    guard let first = fails(whole) else { return whole }
    var operations = Array(whole.prefix(first))
    var isChanged = true
    while isChanged {
      isChanged = false
      var size = max(1, operations.count / 2)
      while size >= 1 {
        var start = 0
        while start < operations.count {
          var candidate = operations
          candidate.removeSubrange(start..<min(start + size, operations.count))
          if fails(candidate) != nil {
            (operations, isChanged) = (candidate, true)
          } else {
            start += size
          }
        }
        size /= 2
      }
      for index in operations.indices.reversed() {
        for form in simpler(operations[index]) {
          var candidate = operations
          candidate.replaceSubrange(index...index, with: form)
          if fails(candidate) != nil {
            (operations, isChanged) = (candidate, true)
            break
          }
        }
      }
    }
    return operations
  }
}

extension Model.Operation {
  /// Replacements for the operation in a shorter history.
  var simpler: [[Model.Operation]] {
    switch self {
    case .put(let copy, let key, let life) where life > 0: [[.put(copy, key: key, life: 0)]]
    case .time(let units) where units > 1: [[.time(1)]]
    case .meet(let one, let other):
      [[.open(one, other), .close(one, other)], [.open(other, one), .close(other, one)]]
    case .join(let copy, true): [[.join(copy, isScoped: false)]]
    case .future(let copy, let key, true): [[.future(copy, key: key, isDelete: false)]]
    case .clone(let copy, true): [[.clone(copy, ofBackup: false)]]
    case .relay(let operation): operation.simpler.map { $0.map { .relay($0) } }
    default: []
    }
  }
}

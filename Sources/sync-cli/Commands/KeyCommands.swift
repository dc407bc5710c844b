import SyncStore

/// `put`, `get` and `delete`: keys that are named.
enum KeyCommands {
  static let delete = Command(
    "delete", "delete keys", aliases: ["rm", "del"], operands: [Operand("KEY", .many)],
    options: [
      Option("prefix", value: "P", "delete all keys that begin with P"),
      Option("dry-run", "only list the keys that would be deleted"), ItemFailures.strict,
    ],
    notes: """
      Ends with 1 if one of the keys was absent; the others are deleted all the same. With --strict all of the keys named
      are deleted, in one transaction, or none.
      """
  ) { invocation, output in
    guard !invocation.operands.isEmpty || invocation.has("prefix") else {
      throw invocation.usage(
        "nothing to delete", reason: "no key is given", advice: "give keys, or --prefix P")
    }
    if let prefix = invocation.value("prefix"), prefix.bytes.isEmpty {
      throw invocation.usage(
        "--prefix", reason: "it is empty and would delete everything",
        advice: "give the keys' common beginning")
    }
    if invocation.has("dry-run") { return try listDeleted(invocation, output) }
    return try invocation.withStore { store in
      let isAlone = invocation.operands.count == 1 && !invocation.has("prefix")
      var failures = ItemFailures(invocation, isAlone: isAlone)
      var deleted = try deleteAll(invocation.operands, in: store, &failures)
      if let prefix = invocation.value("prefix") {
        deleted += try deleteAll(prefix.bytes, in: store, &failures)
      }
      if invocation.wantsJSON { try output.line(["deleted": .integer(deleted)]) }
      invocation.logVerbose("\(Text.count(deleted, noun: "key")) deleted")
      try failures.check()
      return .done
    }
  }.printing(JSONReference.delete)

  private static func absent(_ argument: Argument) -> Failure {
    Failure(.notFound, "delete \(argument.shown): there is no such key: nothing was to be done for it")
  }

  /// Lists what `delete` would delete, each key once.
  private static func listDeleted(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    try invocation.withStore(toWrite: false) { store in
      let isAlone = invocation.operands.count == 1 && !invocation.has("prefix")
      var (failures, listed) = (ItemFailures(invocation, isAlone: isAlone), Set<[UInt8]>())
      func list(_ key: Key) throws {
        guard listed.insert(key.bytes).inserted else { return }
        if invocation.wantsJSON {
          try output.line(JSON.object([KeyLine.member(key.bytes)]))
        } else {
          try output.write(output.shown(key: key.bytes) + [0x0A])
        }
      }
      for argument in invocation.operands {
        let key = try Key(bytes: argument.bytes)
        if try store.contains(key) { try list(key) } else { try failures.record(absent(argument)) }
      }
      if let prefix = invocation.value("prefix") {
        let losses = try store.snapshot().scanReadable(KeyRange(prefix: prefix.bytes)) { try list($0.key) }
        try failures.record(losses.doubts)
      }
      if invocation.wantsJSON { try output.line(["deleted": 0, "would_delete": .integer(listed.count)]) }
      try failures.check()
      return .done
    }
  }

  private static func deleteAll(
    _ operands: [Argument], in store: Store, _ failures: inout ItemFailures
  ) throws -> Int {
    guard !failures.isStrict else {
      let keys = try operands.map { (argument: $0, key: try Key(bytes: $0.bytes)) }
      try store.transaction { transaction in
        for (argument, key) in keys where try !transaction.delete(key) { throw absent(argument) }
      }
      return keys.count
    }
    var deleted = 0
    for argument in operands {
      do {
        if try store.delete(try Key(bytes: argument.bytes)) {
          deleted += 1
        } else {
          try failures.record(absent(argument))
        }
      } catch let error as StoreError {
        guard error.concernsOneItem, ![.readOnly, .diskFull].contains(error.code) else { throw error }
        try failures.record(Failure(StoreError(error, to: "delete \(argument.shown)")))
      }
    }
    return deleted
  }

  private static func deleteAll(
    _ prefix: [UInt8], in store: Store, _ failures: inout ItemFailures
  ) throws -> Int {
    var deleted = 0
    var last: Key?
    repeat {
      // Continue after the last page even if keys could not be deleted: otherwise they would be visited
      // forever.
      var page: [Key] = []
      let (next, losses) = try store.snapshot().scanReadable(
        KeyRange(prefix: prefix), after: last, limit: 1000
      ) {
        page.append($0.key)
      }
      last = next
      deleted += try store.transaction { transaction in
        var count = 0
        for key in page where try transaction.delete(key) { count += 1 }
        return count
      }
      // Doubts about later pages are reported again there.
      for loss in losses {
        if let key = loss.key, next.map({ key <= $0 }) ?? true, try store.delete(key) {
          deleted += 1; continue
        }
        try failures.record([loss], upTo: next)
      }
    } while last != nil
    return deleted
  }
}

import SyncStore

/// `put`, `get` and `delete`: keys that are named.
enum KeyCommands {
  static let put = Command(
    "put", "store a value under a key", aliases: ["set"],
    operands: [Operand("KEY"), Operand("VALUE", .optional)],
    options: [
      Option("file", value: "F", "take the value from a file"),
      Option("ttl", value: "SPAN", "forget it after 90s, 30m, 1h, 7d …"),
      Option(
        "type", value: "T",
        words: [
          "bytes", "string", "bool", "int", "uint", "double", "float", "date", "uuid", "json", "cbor",
        ],
        "bytes (default), string, bool, int, uint, double, float, date, uuid, json or cbor"),
    ],
    notes:
      "The value is VALUE, the content of a file, or standard input where VALUE is \"-\". It is durable on return."
  ) { invocation, _ in
    let key = try Key(bytes: invocation.operands[0].bytes)
    let type = try type(invocation)
    let expiration = try invocation.milliseconds("ttl").map { Expiration.at(System.wallMilliseconds + $0) }
    let operand = invocation.operands.count > 1 ? invocation.operands[1] : nil
    switch (operand, invocation.value("file")) {
    case (nil, nil):
      throw invocation.usage(
        "no value", reason: "neither VALUE nor --file is given", advice: "give one, or - for standard input")
    case (.some, .some):
      throw invocation.usage("two values", reason: "VALUE and --file are both given", advice: "leave out one")
    case (nil, let file?):
      let source = try Descriptor.reading(file.bytes)
      guard try source.status().kind != .directory else {
        throw invocation.usage(
          "--file \(file.shown)", reason: "it is a directory",
          advice: "give a file, or use \"sync-cli import\"")
      }
      try invocation.withStore {
        try $0.put(key, from: source, type: type, expiration: expiration)
      }
    case (let operand?, nil) where operand.bytes == [UInt8(ascii: "-")]:
      let source = Descriptor(standard: 0)
      try invocation.withStore {
        try $0.put(key, from: source, type: type, expiration: expiration)
      }
    case (let operand?, nil):
      guard let bytes = ValueText.bytes(of: operand.bytes, as: type) else {
        throw invocation.usage(
          "\"\(operand.shown)\"", reason: "not of type \(type)", advice: ValueText.expectation(type))
      }
      try invocation.withStore { try $0.put(key, bytes, type: type, expiration: expiration) }
    }
    return .done
  }

  private static func type(_ invocation: Invocation) throws -> ValueType {
    guard let argument = invocation.value("type") else { return .bytes }
    guard let type = ValueType(name: argument.text) else {
      throw invocation.usage(
        "--type \(argument.shown)", reason: "there is no such type",
        advice: "it is one of bytes, string, bool, int, uint, double, float, date, uuid, json and cbor")
    }
    return type
  }

  static let delete = Command(
    "delete", "delete keys", aliases: ["rm", "del"], operands: [Operand("KEY", .many)],
    options: [Option("prefix", value: "P", "delete all keys that begin with P"), ItemFailures.strict],
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
  }

  private static func absent(_ argument: Argument) -> Failure {
    Failure(.notFound, "delete \(argument.shown): there is no such key: nothing was to be done for it")
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

import Testing

/// Calls that may block are made from asynchronous code in one way: inside `BlockingCalls.run`.
@Suite struct BlockingCallsTests {
  /// Types with throwing calls that are used inside a closure of a blocking call, on its thread.
  private static let inside: Set<String> = [
    "KeyRestoration", "OpenTransaction", "Transaction", "ValueWriter",
  ]
  /// Types whose calls only compute: nothing is read or written.
  private static let computing: Set<String> = [
    "Array", "Bool", "ChangePosition", "Double", "EncodedValue", "Expected", "Float", "Int", "Int16", "Int32",
    "Int64", "Int8", "Key", "KeyScope", "LogEntry", "RelayDescription", "S3Options", "S3Store", "String",
    "UInt", "UInt16", "UInt32", "UInt64", "UInt8",
    "Value",
    "VersionedValue",
  ]
  /// Types whose calls are asynchronous: only making a value of them looks at the disk, once.
  private static let opening: Set<String> = ["DirectoryStore"]
  /// The calls that `AsyncStore` has besides `run`: those that do more than run a call on another thread, and
  /// opening and closing.
  private static let asyncStore: Set<String> = [
    "open(at:configuration:)", "openOrCreate(at:name:configuration:)", "create(at:name:id:configuration:)",
    "close()", "run(_:)",
    "put(_:_:type:expiration:durability:)", "put(_:_:expiration:durability:)", "delete(_:durability:)",
    "expire(_:_:durability:)", "put(_:type:expiration:durability:from:)",
    "transaction(durability:_:)", "pausableTransaction(durability:_:)",
  ]

  private static let calls = Result { try PublicCall.all() }

  /// The types that conform to `BlockingCalls`, by themselves or by a protocol that refines it.
  private static func conforming() throws -> Set<String> {
    let declaration =
      #"^(public )?(final )?(extension|class|struct|protocol) \w+[^:]*: .*\b(BlockingCalls|ReadableStore|ReadableCollection)\b"#
    let kinds: Set<Substring> = ["public", "final", "extension", "class", "struct", "protocol"]
    let lines = try Repository.matches(
      declaration, in: Repository.swiftFiles.filter { $0.hasPrefix("Sources/") })
    return Set(
      lines.compactMap { line in
        // "path:line: declaration"
        let words = line.split(separator: " ").dropFirst().drop { kinds.contains($0) }
        return words.first.map { String($0.prefix { $0.isLetter || $0.isNumber || $0 == "_" }) }
      })
  }

  @Test("each type with calls that may block conforms to BlockingCalls")
  func types() throws {
    let failing = Set(try Self.calls.get().filter { $0.isCall && $0.canFail && !$0.isAsync }.map(\.type))
    let others = Self.computing.union(Self.inside).union(Self.opening)
    #expect(others.subtracting(failing) == [])
    let conforming = try Self.conforming()
    #expect(failing.subtracting(others).subtracting(conforming) == [])
    #expect(conforming.intersection(others) == [])
  }

  @Test("no call of a store has a second form for asynchronous code, unless it works differently")
  func oneWay() throws {
    let calls = try Self.calls.get().filter(\.isAsync)
    #expect(Set(calls.filter { $0.type == "AsyncStore" }.map(\.name)) == Self.asyncStore)
    for type in try Self.conforming() where type != "Node" {
      #expect(calls.filter { $0.type == type }.isEmpty, "\(type) has asynchronous forms of its own")
    }
  }

  @Test("thread-bound types cannot be called from tasks, which change threads")
  func barred() throws {
    let barred = Set(try Self.calls.get().filter(\.isBarred).map { "\($0.type).\($0.name)" })
    #expect(
      barred == [
        "Store.beginTransaction(durability:)", "Store.tryBeginTransaction(durability:)",
        "StoreHandle.blockade()",
      ])
  }
}

import Testing

/// Each call that may wait has an asynchronous form, which does not block a thread of the cooperative pool.
@Suite struct AsyncCoverageTests {
  /// Types whose calls may wait, and the type that has their asynchronous forms.
  struct Pair: Sendable, CustomTestStringConvertible {
    let types: [String]
    let form: String
    /// Calls with another name there: `*` in place of the labels matches all overloads of a name.
    var renamed: [String: String] = [:]
    /// Calls that only access memory, or that are made in another way.
    var without: [String: String] = [:]

    var testDescription: String { form }
  }

  static let pairs: [Pair] = [
    Pair(
      types: ["Store", "ReadableStore"], form: "AsyncStore",
      renamed: ["put(_:type:expiration:durability:writing:)": "put(_:type:expiration:durability:from:)"],
      without: [
        "actor": "known", "scope": "known", "isWidening": "known", "blobLimits": "known",
        "blobPolicy": "known",
        "changePosition()": "known", "clockLead()": "known", "versionVector()": "known",
        "contains(_:)": "one look into the index", "entry(_:)": "one look into the index",
        "deadline(of:)": "one look into the index", "purgeMemory()": "memory alone",
        "changes(*": "an asynchronous sequence", "observe(_:)": "an asynchronous sequence",
        "scan(*": "withStore", "scanEntries(*": "withStore", "visit(*": "withStore",
        "visitEntries(*": "withStore",
        "forEachValue(*": "withStore",
      ]),
    Pair(
      types: ["StoreHandle"], form: "AsyncStoreHandle",
      without: [
        "at(*": "touches nothing", "standard(*": "touches nothing", "purgeMemory()": "memory alone",
        "unblockade()": "waits for nobody",
      ]),
    Pair(
      types: ["StoreRoot"], form: "AsyncStoreRoot",
      without: ["init(_:configuration:)": "touches nothing", "standard(*": "touches nothing"]),
    Pair(
      types: ["StoreCollection", "ReadableCollection"], form: "AsyncStoreCollection",
      without: [
        "contains(_:)": "one look into the index", "deadline(of:)": "one look into the index",
        "changes(from:)": "an asynchronous sequence", "key(of:)": "computed", "reading(_:)": "computed",
        "contains(_:in:)": "in a transaction", "delete(_:in:)": "in a transaction",
        "expire(_:_:in:)": "in a transaction", "get(_:in:)": "in a transaction",
        "insert(_:expiration:in:)": "in a transaction",
        "insertOrIgnore(_:expiration:in:)": "in a transaction",
        "insertOrReplace(_:expiration:in:)": "in a transaction",
        "replace(_:in:)": "in a transaction", "update(_:in:_:)": "in a transaction",
      ]),
    Pair(
      types: ["DiskCache"], form: "AsyncDiskCache",
      renamed: ["count": "totals()", "totalBytes": "totals()"]),
    Pair(
      types: ["Cache"], form: "AsyncCache",
      renamed: ["init(at:name:memory:limits:)": "open(at:name:memory:limits:)"],
      without: ["init(memory:disk:)": "touches nothing"]),
    Pair(types: ["ValueReader"], form: "AsyncValueReader"),
    Pair(types: ["Membership"], form: "AsyncMembership", without: ["init(_:)": "touches nothing"]),
    Pair(
      types: ["Node"], form: "Node",
      renamed: ["init(store:configuration:)": "make(store:configuration:)"],
      without: [
        "keepInStep(_:)": "handed to the event loop", "stopKeepingInStep()": "handed to the event loop",
        "states(of:)": "an asynchronous sequence",
      ]),
    Pair(
      types: ["MMKVFile"], form: "MMKVFile",
      renamed: ["init(path:cryptKey:cipher:)": "read(path:cryptKey:cipher:)"],
      without: [
        "raw(_:)": "in memory", "deadline(_:)": "in memory", "bool(_:)": "in memory",
        "integer(_:)": "in memory",
        "float(_:)": "in memory", "double(_:)": "in memory", "data(_:)": "in memory",
        "string(_:)": "in memory",
      ]),
  ]

  private static let calls = Result { try PublicCall.all() }

  @Test("each call that may block has an asynchronous form", arguments: AsyncCoverageTests.pairs)
  func forms(pair: Pair) throws {
    let calls = try Self.calls.get()
    let forms = Set(calls.filter { $0.type == pair.form && $0.isAsync }.map(\.name))
    let waiting = Set(
      calls.filter { pair.types.contains($0.type) && $0.isCall && !$0.isAsync && !$0.isBarred }.map(\.name))
    #expect(!forms.isEmpty && !waiting.isEmpty)
    func matches(_ name: String, _ pattern: String) -> Bool {
      pattern.hasSuffix("(*") ? name.hasPrefix(pattern.dropLast()) : name == pattern
    }
    for name in waiting where !pair.without.keys.contains(where: { matches(name, $0) }) {
      let form = pair.renamed[name] ?? name
      #expect(forms.contains(form), "\(pair.types[0]).\(name) has no \(pair.form).\(form)")
    }
    // Each exception must still exist and still lack a form.
    for pattern in pair.without.keys {
      #expect(waiting.contains { matches($0, pattern) && !forms.contains($0) }, "\(pattern) is not there")
    }
    for name in pair.renamed.keys { #expect(waiting.contains(name), "\(name) is not there") }
  }

  /// Types with throwing calls but without an asynchronous counterpart, and the call that asynchronous code
  /// uses instead.
  private static let others = [
    "Snapshot": "AsyncStore.withSnapshot", "CollectionSnapshot": "AsyncStoreCollection.withSnapshot",
    "Change": "AsyncStore.value(of:)",
    "Transaction": "AsyncStore.transaction", "OpenTransaction": "AsyncStore.transaction",
    "ValueWriter": "AsyncStore.put(_:type:expiration:durability:from:)",
  ]
  /// Types whose calls only compute: nothing is read or written.
  private static let computing: Set<String> = [
    "Array", "Bool", "ChangePosition", "Double", "EncodedValue", "Expected", "Float", "Int", "Int16", "Int32",
    "Int64", "Int8", "Key", "KeyScope", "LogEntry", "String", "UInt", "UInt16", "UInt32", "UInt64", "UInt8",
    "Value",
    "VersionedValue",
  ]

  @Test("each type with calls that may block is covered")
  func types() throws {
    let failing = Set(try Self.calls.get().filter { $0.isCall && $0.canFail && !$0.isAsync }.map(\.type))
    let known = Self.computing.union(Self.others.keys).union(Self.pairs.flatMap(\.types))
    #expect(failing.subtracting(known) == [])
    #expect(known.subtracting(failing) == [])
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

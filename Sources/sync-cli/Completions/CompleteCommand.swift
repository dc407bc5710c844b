import Replication
import SyncStore

/// `complete`: names in the store that a word could become. The scripts of `completions` call it at each
/// press of the key, so it is quick and silent.
enum CompleteCommand {
  static let command = Command(
    "complete", "print the names in the store that begin with a word, for completion",
    operands: [Operand("WORD", .optional)],
    options: [
      Option("kind", value: "K", words: WordKind.Names.allCases.map(\.rawValue), "keys, peers or invitations")
    ],
    notes: """
      The scripts of "sync-cli completions" call it. It never asks for a passphrase: names in an encrypted
      store are not printed. It takes at most \(usualMilliseconds) ms, or the milliseconds in
      SYNC_COMPLETE_TIMEOUT. If the keys cannot be sorted in that time, it prints some of those written last.
      """
  ) { invocation, _ in
    guard let names = invocation.value("kind").flatMap({ WordKind.Names(rawValue: $0.text) }) else {
      return .done
    }
    let milliseconds = mostMilliseconds
    let answer = Answer()
    System.exit(.done, after: milliseconds) { answer.give(nil) }
    let word = invocation.operands.first?.bytes ?? []
    // A message would be printed into the line that is being typed.
    if let found = try? candidates(names, prefix: word, invocation: invocation, answer: answer) {
      answer.give(found)
    }
    return .done
  }

  /// The first listing of a process sorts all keys: with more than some hundred thousand that takes longer
  /// than a person at the keyboard waits.
  private static let usualMilliseconds = 180
  /// Milliseconds after which it prints what it has.
  static var mostMilliseconds: Int {
    System.environment("SYNC_COMPLETE_TIMEOUT").flatMap { Int($0) } ?? usualMilliseconds
  }
  /// More would not fit the screen.
  static let mostCandidates = 200
  /// Records that are searched for keys written last.
  private static let recentRecords: UInt64 = 5000
  /// Keys are offered up to the next of these, as a shell offers paths.
  private static let separators: Set<UInt8> = [UInt8(ascii: "/"), UInt8(ascii: ":")]

  /// The names to print, once: when they are complete, or when the time is up.
  private final class Answer: Sendable {
    /// Those known so far; nil once they are printed.
    private let known = LockedField<[String]?>([])

    /// Sets the names to print if the time is up before they are complete.
    func expect(_ names: [String]) { known.withLock { if $0 != nil { $0 = names } } }

    /// Prints these names, or those known so far.
    func give(_ names: [String]?) {
      known.withLock { known in
        guard let names = known == nil ? nil : names ?? known else { return }
        known = nil
        try? Descriptor(standard: 1).write(names.flatMap { Array($0.utf8) + [0x0A] })
      }
    }
  }

  private static func candidates(
    _ names: WordKind.Names, prefix: [UInt8], invocation: Invocation, answer: Answer
  ) throws -> [String] {
    let path = try invocation.storePath()
    guard try !Store.isEncrypted(at: path) else { return [] }
    return try invocation.withStore((path, invocation.configuration(.readOnly))) { store in
      try candidates(names, prefix: prefix, in: store, expect: answer.expect)
    }
  }

  /// Names that begin with `prefix`. Before it sorts keys, which may take long, it calls `expect` with some.
  static func candidates(
    _ names: WordKind.Names, prefix: [UInt8], in store: Store, expect: ([String]) -> Void
  ) throws -> [String] {
    let membership = Membership(store)
    let found: [String]
    switch names {
    case .keys:
      expect(try recentKeys(prefix, in: store))
      return try keys(prefix, in: store.snapshot())
    case .peers:
      found =
        try membership.members().map(\.name) + membership.peers().map(\.name)
        + membership.relays().map(\.name)
    case .invitations: found = try membership.invitations().map(\.id)
    }
    let text = String(decoding: prefix, as: UTF8.self)
    return StringSet(found.filter { $0.hasPrefix(text) }).sorted()
  }

  /// Keys that begin with `prefix` among the last records of the journal, each up to the next separator.
  static func recentKeys(_ prefix: [UInt8], in store: Store) throws -> [String] {
    // The number of the last record is in the text of a position.
    let fields = try store.changePosition().description.utf8.split(separator: UInt8(ascii: ":"))
    let last = fields.count > 1 ? UInt64(Substring(fields[1])) ?? 0 : 0
    let first = last > recentRecords ? last - recentRecords : 1
    var found: StringSet = []
    for entry in try store.log(from: first, limit: Int(recentRecords) + 1) {
      guard entry.isCurrent, !entry.isTombstone, let key = entry.key?.bytes, key.starts(with: prefix),
        let text = shown(name(of: key, after: prefix).bytes)
      else { continue }
      found.insert(text)
    }
    return Array(found.sorted().prefix(mostCandidates))
  }

  /// A key up to the first separator after the prefix; `isPart` if more keys may begin with it.
  private static func name(of key: [UInt8], after prefix: [UInt8]) -> (bytes: [UInt8], isPart: Bool) {
    guard let end = key.dropFirst(prefix.count).firstIndex(where: separators.contains) else {
      return (key, false)
    }
    return (Array(key[...end]), true)
  }

  /// A name for the line that is being typed, which control characters would upset; nil if it has some.
  private static func shown(_ name: [UInt8]) -> String? {
    guard let text = String(validating: name, as: UTF8.self), Text.printable(name) == text else { return nil }
    return text
  }

  /// The keys that begin with `prefix`, each up to the next separator. Reads one key for each of them.
  static func keys(_ prefix: [UInt8], in snapshot: Snapshot) throws -> [String] {
    var found: [String] = []
    var (range, after) = (KeyRange(prefix: prefix), Key?.none)
    for _ in 0..<mostCandidates {
      var next: Key?
      _ = try snapshot.scanReadable(range, after: after, limit: 1) { next = $0.key }
      guard let key = next, key.bytes.starts(with: prefix) else { break }
      let (name, isPart) = name(of: key.bytes, after: prefix)
      if isPart {
        // Skips all keys that begin with it; separators are below 0xFF.
        var skipped = name
        skipped[skipped.count - 1] += 1
        (range, after) = (KeyRange(try Key(bytes: skipped)...), nil)
      } else {
        after = key
      }
      if let text = shown(name) { found.append(text) }
    }
    return found
  }
}

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
      store are not printed. It prints nothing rather than taking longer than \(usualMilliseconds) ms, or the
      milliseconds in SYNC_COMPLETE_TIMEOUT.
      """
  ) { invocation, output in
    guard let names = invocation.value("kind").flatMap({ WordKind.Names(rawValue: $0.text) }) else {
      return .done
    }
    let milliseconds = System.environment("SYNC_COMPLETE_TIMEOUT").flatMap { Int($0) } ?? usualMilliseconds
    System.exit(.done, after: milliseconds)
    let word = invocation.operands.first?.bytes ?? []
    // A message would be printed into the line that is being typed.
    guard let found = try? candidates(names, word, invocation) else { return .done }
    for name in found { try? output.line(name) }
    return .done
  }

  /// The first listing of a process sorts all keys: in a store of many millions that takes longer than a
  /// person at the keyboard waits.
  private static let usualMilliseconds = 180
  /// More would not fit the screen.
  static let mostCandidates = 200
  /// Keys are offered up to the next of these, as a shell offers paths.
  private static let separators: Set<UInt8> = [UInt8(ascii: "/"), UInt8(ascii: ":")]

  private static func candidates(
    _ names: WordKind.Names, _ word: [UInt8], _ invocation: Invocation
  ) throws -> [String] {
    let path = try invocation.storePath()
    guard try !Store.isEncrypted(at: path) else { return [] }
    return try invocation.withStore((path, invocation.configuration(.readOnly))) { store in
      let membership = Membership(store)
      let found: [String] =
        switch names {
        case .keys: try keys(word, in: store.snapshot())
        case .peers: try membership.members().map(\.name) + membership.peers().map(\.name)
        case .invitations: try membership.invitations().map(\.id)
        }
      let text = String(decoding: word, as: UTF8.self)
      return StringSet(found.filter { $0.hasPrefix(text) }).sorted()
    }
  }

  /// The keys that begin with `prefix`, each up to the next separator. Reads one key for each of them.
  static func keys(_ prefix: [UInt8], in snapshot: Snapshot) throws -> [String] {
    var found: [String] = []
    var (range, after) = (KeyRange(prefix: prefix), Key?.none)
    for _ in 0..<mostCandidates {
      var next: Key?
      _ = try snapshot.scanReadable(range, after: after, limit: 1) { next = $0.key }
      guard let key = next, key.bytes.starts(with: prefix) else { break }
      var name = key.bytes
      if let end = name.dropFirst(prefix.count).firstIndex(where: separators.contains) {
        name.removeLast(name.count - 1 - end)
        // Skips all keys that begin with it; separators are below 0xFF.
        var skipped = name
        skipped[end] += 1
        (range, after) = (KeyRange(try Key(bytes: skipped)...), nil)
      } else {
        after = key
      }
      // A name with control characters would upset the line that is being typed.
      if let text = String(validating: name, as: UTF8.self), Text.printable(name) == text {
        found.append(text)
      }
    }
    return found
  }
}

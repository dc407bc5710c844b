private import Dispatch
import SyncStore

/// Completion of the word before the cursor in a shell, by the table and the names that the scripts of
/// `completions` use.
struct ShellCompletion: Sendable {
  private let invocation: Invocation
  private let commands: [Command]
  /// Names come from the store on this queue: a command that needs the store alone waits for it.
  private let queue = DispatchQueue(label: "sync-cli.completion")

  /// Completion for the store and the options of the shell.
  init(invocation: Invocation, commands: [Command]) {
    (self.invocation, self.commands) = (invocation, commands)
  }

  /// The change to a line.
  struct Change: Equatable {
    /// The number of bytes before the cursor that `text` replaces.
    var replaced = 0
    var text: [UInt8] = []
    /// The words to show, if there are several.
    var shown: [String] = []
  }

  /// Words of the shell itself.
  static let ownWords = ["exit", "quit"]

  /// Waits for the end of a reading that took longer than a person waits.
  func finish() { queue.sync {} }

  /// Completes a line up to the cursor. `open` has read the lines before it.
  func change(_ line: [UInt8], after open: ShellWords = ShellWords()) -> Change {
    var words = open
    guard (try? words.read(line)) != nil else { return Change() }
    let begun = words.current.map { _ in words.start - open.count } ?? line.count
    // The word began on a line that cannot be changed any more.
    guard begun >= 0 else { return Change() }
    let (found, stem, prefix) = candidates(words)
    return Self.change(of: line.count - begun, stem: stem, prefix: prefix, to: found)
  }

  /// The words that can stand for the last one, and the bytes of it before and in what they replace.
  func candidates(_ words: ShellWords) -> (found: [String], stem: [UInt8], prefix: [UInt8]) {
    let current = words.current ?? []
    let table = CompletionScript.Table(commands: commands, globals: Help.globals)
    let before = WordsBeforeCursor(words.words, in: table)
    var (fixed, kind, stem) = before.expected(current)
    if words.words.isEmpty { fixed += Self.ownWords }
    let prefix = Array(current.dropFirst(stem.count))
    let found = fixed.filter { $0.utf8.starts(with: prefix) } + names(kind, prefix, in: before.store)
    return (found, stem, prefix)
  }

  /// Replaces the last `length` bytes by the longest common beginning of these words.
  static func change(of length: Int, stem: [UInt8], prefix: [UInt8], to found: [String]) -> Change {
    guard let first = found.first else { return Change() }
    var common = Array(first.utf8)
    for word in found.dropFirst() { common = Array(zip(common, word.utf8).prefix { $0 == $1 }.map(\.0)) }
    // The beginnings of two characters may be equal.
    while String(validating: common, as: UTF8.self) == nil { common.removeLast() }
    guard found.count == 1 else {
      if common.count <= prefix.count { return Change(shown: found) }
      return Change(replaced: length, text: ShellWords.quoted(stem + common, isOpen: true))
    }
    let isPart = [UInt8(ascii: "/"), UInt8(ascii: ":")].contains(common.last)
    return Change(
      replaced: length, text: ShellWords.quoted(stem + common, isOpen: isPart) + (isPart ? [] : [0x20]))
  }

  private func names(_ kind: WordKind, _ prefix: [UInt8], in store: Argument?) -> [String] {
    switch kind {
    case .words(let words): words.filter { $0.utf8.starts(with: prefix) }
    case .files: Self.files(prefix) { $0 != .other }
    case .directories: Self.files(prefix) { $0 == .directory }
    case .stored(let names): stored(names, prefix, in: store)
    case .other: []
    }
  }

  /// Names in the store, or those that are known when the time is up. The keys of an encrypted store are
  /// offered once its passphrase was given.
  private func stored(_ names: WordKind.Names, _ prefix: [UInt8], in store: Argument?) -> [String] {
    var values = invocation.values
    if let store {
      values["store"] = [store]
      values[Secrets.option.name] = nil
    }
    let named = Invocation(
      command: CompleteCommand.command, operands: [], values: values, shell: invocation.shell)
    let (found, done) = (Locked<[String]>([]), DispatchSemaphore(value: 0))
    queue.async {
      defer { done.signal() }
      guard let opening = try? named.openingWithoutQuestion() else { return }
      let complete = try? named.withStore(opening) { store in
        try CompleteCommand.candidates(names, prefix: prefix, in: store) { some in
          found.withLock { $0 = some }
        }
      }
      if let complete { found.withLock { $0 = complete } }
    }
    _ = done.wait(timeout: .now() + .milliseconds(CompleteCommand.mostMilliseconds))
    return found.withLock { $0 }
  }

  private static func files(_ prefix: [UInt8], _ isOffered: (Descriptor.Kind) -> Bool) -> [String] {
    let slash = UInt8(ascii: "/")
    let folder = prefix[..<(prefix.lastIndex(of: slash).map { $0 + 1 } ?? 0)]
    let start = prefix.dropFirst(folder.count)
    let path = folder.isEmpty ? [UInt8(ascii: ".")] : Array(folder)
    guard let directory = try? Descriptor.reading(path, waiting: false), let names = try? directory.names()
    else {
      return []
    }
    var found: [String] = []
    for name in names where name.starts(with: start) && found.count < CompleteCommand.mostCandidates {
      guard !start.isEmpty || name.first != UInt8(ascii: "."),
        let kind = (try? Descriptor.kind(at: folder + name)) ?? nil, isOffered(kind),
        let text = String(validating: folder + name, as: UTF8.self)
      else { continue }
      found.append(kind == .directory ? text + "/" : text)
    }
    return found
  }
}

extension Invocation {
  /// Path and configuration to read the store with, if that needs no question.
  fileprivate func openingWithoutQuestion() throws -> (path: String, configuration: Configuration)? {
    let path = try storePath()
    var configuration = configuration(.readOnly)
    if try Store.isEncrypted(at: path) {
      guard let known = shell?.knownPassphrase(of: path, value(Secrets.option.name)) else { return nil }
      configuration.passphrase = known
    }
    return (path, configuration)
  }
}

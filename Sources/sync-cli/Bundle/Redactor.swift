import SyncStore

/// Takes what is private out of texts and JSON: keys, names, addresses, paths and identities of devices.
///
/// A known name or host becomes the same word everywhere, so that a reader can follow it. Anything that could
/// be private and is not known becomes "…".
struct Redactor {
  /// The words that replace known texts: names of members and peers, hosts, paths.
  private var words: [(text: String, word: String)] = []
  private var devices: StringDictionary<String> = [:]

  /// Replaces a text by a word, wherever it stands by itself. The first word of a text counts.
  mutating func replace(_ text: String, by word: String) {
    guard !text.isEmpty, !words.contains(where: { $0.text == text }) else { return }
    // A longer text first: it may contain a shorter one.
    let index = words.firstIndex { $0.text.utf8.count < text.utf8.count } ?? words.endIndex
    words.insert((text, word), at: index)
  }

  /// The word for a name or an address; "…" for one that is not known.
  func word(for text: String) -> String { words.first { $0.text == text }?.word ?? "…" }

  /// The word for the key of a device: the same for the same device.
  mutating func device(_ key: String) -> String {
    if let word = devices[key] { return word }
    let word = "device-\(devices.count + 1)"
    devices[key] = word
    return word
  }

  // MARK: - Texts

  private static var quoted: Regex<Substring> { /"[^"]*"?/ }
  private static var privateForms: [(Regex<Substring>, String)] {
    [
      (/syncstore1:\S*/, "…"), (/-----BEGIN [\s\S]*/, "…"), (/[a-z0-9+]+:\/\/\S+/, "<address>"),
      (/dir:\S+/, "<path>"), (/\[[0-9A-Fa-f:.%]+\](?::\d+)?/, "<address>"),
      (/\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?/, "<address>"),
      (/(?:[0-9A-Fa-f]{0,4}:){3,}[0-9A-Fa-f.]*/, "<address>"),
      (/[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*:\d{1,5}\b/, "<address>"),
      (/[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+\.[A-Za-z]{2,}/, "<address>"),
      // Hashes and keys.
      (/[A-Za-z0-9+\/_-]{32,}=*/, "…"), (/\/[^\s:,;)]+/, "<path>"),
    ]
  }

  private static var date: Regex<Substring> { /\d{4}-\d\d-\d\dT[\d:.]+Z/ }

  /// A message without what is private. Texts between quotes are left out, except commands of this program.
  func text(_ message: String) -> String {
    var text = replacingWords(message)
    // "a record of key K": a key can contain anything.
    if let key = text.firstMatch(of: /\bof key .*/) { text.replaceSubrange(key.range, with: "of key …)") }
    text = text.replacing(Self.quoted) { match in
      Self.isCommand(match.output) ? String(match.output) : "\"…\""
    }
    var (result, rest) = ("", text[...])
    while let date = rest.firstMatch(of: Self.date) {
      result += Self.withoutPrivateForms(rest[..<date.range.lowerBound]) + date.output
      rest = rest[date.range.upperBound...]
    }
    return result + Self.withoutPrivateForms(rest)
  }

  private static func withoutPrivateForms(_ text: Substring) -> String {
    privateForms.reduce(String(text)) { text, form in
      // "peer-1:4000" is what is left of an address.
      text.replacing(form.0) { match in
        ["peer-", "member-", "this-"].contains { match.output.hasPrefix($0) } ? String(match.output) : form.1
      }
    }
  }

  /// A line of the daemon's log, in one of its formats, also as journalctl(1) prints it.
  func logLine(_ line: String) -> String {
    if let json = try? JSONParser.parse(Array(line.utf8)), let message = json["message"]?.text {
      let (time, level) = (json["time"]?.text ?? "", json["level"]?.text ?? "")
      return "\(text(time)) \(text(level)) \(logMessage(message[...]))"
    }
    // A time, and the machine and the process that journalctl names.
    let time = line.prefixMatch(of: Self.logTime)?.output ?? ""
    let rest = line.dropFirst(time.count)
    guard let process = rest.prefixMatch(of: /(?:\S+ \S+\[\d+\]: )?(<\d>)?/) else {
      return time + logMessage(rest)
    }
    return time + (process.1 ?? "") + logMessage(rest[process.range.upperBound...])
  }

  private static var logTime: Regex<Substring> {
    #/\d{4}-\d\d-\d\dT[\d:.+Z-]+\ |[A-Z][a-z]{2}\ +\d+\ [\d:]+\ /#
  }

  /// A message of the log. Its first words may name a member or a peer that is forgotten meanwhile.
  private func logMessage(_ message: Substring) -> String {
    let rest = text(String(message))
    guard let end = message.firstMatch(of: Self.subject)?.range.lowerBound else { return rest }
    let subject = message[..<end]
    let isOfProgram = subject.hasPrefix("/") || Self.subjects.contains { subject.hasPrefix($0) }
    let isKnown = isOfProgram || words.contains { $0.text.elementsEqual(subject) }
    return isKnown ? rest : "…" + text(String(message[end...]))
  }

  private static var subject: Regex<Substring> {
    /: | connected from | stays connected| was revoked|, which was revoked| is read-| tried to join/
  }
  /// Beginnings of the daemon's own messages, which name no member.
  private static let subjects = [
    "serve", "waiting", "ending", "configuration ", "listening on", "the ", "a new ", "cannot ", "still ",
    "no ",
    "ended", "what was learned", "a large value",
  ]

  private static func isCommand(_ text: Substring) -> Bool {
    let words = text.dropFirst().dropLast()
    guard words.hasPrefix("sync-cli ") else { return false }
    let name = words.dropFirst("sync-cli ".count)
    return Program.commands.contains { $0.name.elementsEqual(name) }
  }

  private func replacingWords(_ message: String) -> String {
    words.reduce(message) { message, entry in
      var (result, rest) = ("", message[...])
      while let range = rest.firstRange(of: entry.text) {
        let before = rest[..<range.lowerBound].last ?? result.last
        let isAlone = !Self.isPartOfWord(before) && !Self.isPartOfWord(rest[range.upperBound...].first)
        result += rest[..<range.lowerBound] + (isAlone ? entry.word : String(rest[range]))
        rest = rest[range.upperBound...]
      }
      return result + rest
    }
  }

  private static func isPartOfWord(_ character: Character?) -> Bool {
    character.map { $0.isLetter || $0.isNumber || $0 == "_" } ?? false
  }

  // MARK: - JSON

  /// Members whose texts are words of this program, or identifiers that are no secret.
  private static let plain: StringSet = [
    "store", "actor", "right", "phase", "state", "writes", "take", "log", "log_level", "schedule", "kind",
  ]

  /// JSON that a command prints, without what is private. Only what is known to be harmless stays.
  mutating func json(_ value: JSON, named name: String = "") -> JSON {
    switch value {
    case .null, .bool, .number: return value
    case .array(let items):
      var redacted: [JSON] = []
      for item in items { redacted.append(json(item, named: name)) }
      return .array(redacted)
    case .object(let members):
      var redacted: [JSON.Member] = []
      for member in members {
        redacted.append(.init(name: member.name, value: json(member.value, named: member.name)))
      }
      return .object(redacted)
    case .string(let text):
      switch name {
      case _ where Self.plain.contains(name): return value
      case "device": return .string(device(text))
      case "text", "message", "last_error": return .string(self.text(text))
      // In the problems of `status --check` a name is a word of the program; elsewhere it is private.
      default: return .string(word(for: text))
      }
    }
  }
}

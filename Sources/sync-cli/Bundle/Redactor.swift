import SyncStore

/// Takes what is private out of texts and JSON: keys, names, addresses, paths and identities of devices.
///
/// A known name or host becomes the same word everywhere, so that a reader can follow it. Anything that could
/// be private and is not known becomes "…".
struct Redactor {
  /// The words that replace known texts: names of members and peers, hosts, paths.
  private var words: [(text: String, word: String)] = []
  private var devices: StringDictionary<String> = [:]
  private let forms = PrivateForms()

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

  /// A message without what is private.
  ///
  /// All from the first quote to the last is left out, since what is quoted may have quotes itself. Commands
  /// of this program stay, in other quotes.
  func text(_ message: String) -> String {
    var text = replacingWords(message)
    text = text.replacing(forms.commands) { match in
      let isCommand = Program.commands.contains { "sync-cli \($0.name)" == String(match.1) }
      return isCommand ? "'\(match.1)'" : String(match.0)
    }
    // "a record of key K": a key can contain anything.
    text = text.replacing(forms.quoted, with: "\"…\"").replacing(forms.key, with: "of key …")
    var (result, rest) = ("", text[...])
    while let date = rest.firstMatch(of: forms.date) {
      result += withoutPrivateForms(rest[..<date.range.lowerBound]) + date.output
      rest = rest[date.range.upperBound...]
    }
    return result + withoutPrivateForms(rest)
  }

  private func withoutPrivateForms(_ text: Substring) -> String {
    forms.privateForms.reduce(String(text)) { text, form in
      text.replacing(form.0) { match in
        // "peer-1:4000" is what is left of an address.
        let isWord = ["peer-", "member-", "this-"].contains { match.output.utf8.starts(with: $0.utf8) }
        return isWord ? String(match.output) : form.1
      }
    }
  }

  private func replacingWords(_ message: String) -> String {
    words.reduce(message) { message, entry in
      var (result, rest) = (String.UnicodeScalarView(), message.unicodeScalars[...])
      while let range = rest.firstRange(of: entry.text.unicodeScalars) {
        let before = rest[..<range.lowerBound].last ?? result.last
        let isAlone = !Self.isPartOfWord(before) && !Self.isPartOfWord(rest[range.upperBound...].first)
        result += rest[..<range.lowerBound]
        if isAlone { result += entry.word.unicodeScalars } else { result += rest[range] }
        rest = rest[range.upperBound...]
      }
      return String(result + rest)
    }
  }

  private static func isPartOfWord(_ scalar: Unicode.Scalar?) -> Bool {
    scalar.map { $0.properties.isAlphabetic || $0.properties.numericType != nil || $0 == "_" } ?? false
  }

  // MARK: - Logs

  /// Beginnings of the daemon's own messages, which name no member.
  private static let subjects = [
    "/", "serve", "waiting", "ending", "ended", "configuration ", "listening on", "the ", "a new ", "cannot ",
    "still ", "no ", "what was learned", "a large value",
  ]

  /// A line of the daemon's log, in one of its formats, also as journalctl(1) prints it.
  func logLine(_ line: String) -> String {
    if let json = try? JSONParser.parse(Array(line.utf8)), let message = json["message"]?.text {
      let (time, level) = (json["time"]?.text ?? "", json["level"]?.text ?? "")
      return "\(text(time)) \(text(level)) \(logMessage(message[...]))"
    }
    let time = line.prefixMatch(of: forms.logTime)
    let rest = line[(time?.range.upperBound ?? line.startIndex)...]
    let process = rest.prefixMatch(of: forms.logProcess)
    let message = rest[(process?.range.upperBound ?? rest.startIndex)...]
    return (time?.output ?? "") + (process?.1 ?? "") + logMessage(message)
  }

  /// A message of the log. Its first words may name a member or a peer that was removed since.
  private func logMessage(_ message: Substring) -> String {
    let rest = text(String(message))
    guard let end = message.firstMatch(of: forms.subject)?.range.lowerBound else { return rest }
    let subject = message[..<end].utf8
    let isKnown =
      Self.subjects.contains { subject.starts(with: $0.utf8) }
      || words.contains { $0.text.utf8.elementsEqual(subject) }
    return isKnown ? rest : "…" + text(String(message[end...]))
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

/// Forms of private texts. They match scalars: to a regex of characters, a combining mark hides the quote or
/// slash before it.
private struct PrivateForms {
  let commands = /"(sync-cli [a-z -]+)"/.matchingSemantics(.unicodeScalar)
  let quoted = /"(?s:.*)"|"(?s:.*)/.matchingSemantics(.unicodeScalar)
  let key = /\bof key (?s:.*)/.matchingSemantics(.unicodeScalar)
  let date = /\d{4}-\d\d-\d\dT[\d:.]+Z/.matchingSemantics(.unicodeScalar)
  let logTime = #/\d{4}-\d\d-\d\dT[\d:.+Z-]+\ |[A-Z][a-z]{2}\ +\d+\ [\d:]+\ /#.matchingSemantics(
    .unicodeScalar)
  /// The machine and the process, as journalctl(1) names them, and the priority.
  let logProcess = /(?:\S+ \S+\[\d+\]: )?(<\d>)?/.matchingSemantics(.unicodeScalar)
  let subject =
    /: | connected from | stays connected| was revoked|, which was revoked| is read-| tried to join/
    .matchingSemantics(.unicodeScalar)
  /// In the order in which they are replaced, with the words that replace them.
  let privateForms: [(Regex<Substring>, String)] = [
    (/syncstore1:\S*/, "…"), (/-----BEGIN (?s:.*)/, "…"), (/[a-z0-9+]+:\/\/\S+/, "<address>"),
    (/dir:\S+/, "<path>"), (/\[[0-9A-Fa-f:.%]+\](?::\d+)?/, "<address>"),
    (/\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?/, "<address>"),
    (/(?:[0-9A-Fa-f]{0,4}:){3,}[0-9A-Fa-f.]*/, "<address>"),
    (/[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*:\d{1,5}\b/, "<address>"),
    (/[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+\.[A-Za-z]{2,}/, "<address>"),
    // Hashes and keys.
    (/[A-Za-z0-9+\/_-]{32,}=*/, "…"), (/\/[^\s:,;)]+/, "<path>"),
  ].map { (form: Regex<Substring>, word: String) in (form.matchingSemantics(.unicodeScalar), word) }
}

import SyncStore

/// The daemon's configuration as it stands in a file, with all mistakes in it.
struct ConfigurationFile {
  /// Maximum size of a file.
  static let maximumBytes = 1 << 20

  private(set) var configuration = ServeConfiguration()
  /// The settings that the file has, as they stand there.
  private(set) var settings: [(setting: Setting, value: JSON)] = []
  /// In the order of the file.
  private(set) var mistakes: [ConfigurationMistake] = []
  /// For messages.
  private let name: String
  private let bytes: [UInt8]
  private var peers: LocatedJSON?

  /// Reads a file. Without `waiting`, a pipe without a writer is an error.
  init(at path: Argument, waiting: Bool = true) throws(Failure) {
    let file = try Descriptor.reading(path.bytes, waiting: waiting)
    let bytes = try file.readAll(limit: Self.maximumBytes + 1)
    guard bytes.count <= Self.maximumBytes else {
      throw Failure(
        .usage, "serve: \(path.shown): it has more than \(Self.maximumBytes) bytes: name a file of JSON")
    }
    self.init(bytes, named: path.shown)
  }

  /// Decodes the content of a file.
  init(_ bytes: [UInt8], named name: String) {
    (self.bytes, self.name) = (bytes, name)
    let document = JSONParser.document(bytes)
    for mistake in document.mistakes {
      mistakes.append(
        ConfigurationMistake(
          file: name, place: mistake.place, setting: nil, what: mistake.reason, advice: mistake.advice))
    }
    if let root = document.root { read(root) }
    mistakes.sort { $0.place < $1.place }
  }

  private mutating func read(_ root: LocatedJSON) {
    guard case .object = root.value else {
      return note("it holds \(root.value.kind), and no object", at: root.offset, advice: "begin with {")
    }
    read(root.members, in: nil)
    guard let blobs = configuration.blobs, blobs.policy.eagerBytes == .max,
      !blobs.policy.eagerPrefixes.isEmpty,
      let prefixes = root.members.last(where: { $0.name == "blobs" })?.value.members.last(where: {
        $0.name == "eager_prefixes"
      })
    else { return }
    note(
      "\"blobs.eager_prefixes\" means nothing while \"blobs.take\" is \"eager\"", at: prefixes.offset,
      setting: "blobs.eager_prefixes", advice: "write \"lazy\" or a size for \"blobs.take\"")
  }

  private mutating func read(_ members: [LocatedJSON.Member], in parent: String?) {
    let known = Settings.all.filter { $0.parent == parent }
    for member in members {
      guard let setting = known.first(where: { $0.member.utf8.elementsEqual(member.name.utf8) }) else {
        unknown(member, among: known.map(\.member), in: parent)
        continue
      }
      if setting.name == "peers" { peers = member.value }
      settings.append((setting, member.value.value))
      if refusesSecret(in: member, setting: setting.name) { continue }
      do throws(Setting.Mistake) {
        let content = try setting.content(of: member.value.value)
        setting.apply(content, &configuration)
        if content == .object { read(member.value.members, in: setting.name) }
      } catch {
        let item = error.item.map { member.value.items[$0].offset }
        note(
          "\"\(setting.name)\" \(error.what)", at: item ?? member.value.offset, setting: setting.name,
          advice: error.advice)
      }
    }
  }

  private mutating func unknown(_ member: LocatedJSON.Member, among known: [String], in parent: String?) {
    let name = (parent.map { $0 + "." } ?? "") + member.name
    let shown = Text.printable(name.utf8)
    if let advice = Self.adviceForSecret(named: member.name) {
      return note(
        "\"\(shown)\" looks like a secret, and a configuration holds none", at: member.offset, setting: name,
        advice: advice)
    }
    guard !refusesSecret(in: member, setting: name) else { return }
    let near = ArgumentParser.nearest(to: member.name, in: known).map { "did you mean \"\($0)\"?" }
    note(
      "\"\(shown)\" is no setting", at: member.offset, setting: name,
      advice: near ?? "leave it out: sync-cli.conf(5) lists the settings")
  }

  private mutating func note(_ what: String, at offset: Int, setting: String? = nil, advice: String) {
    mistakes.append(
      ConfigurationMistake(
        file: name, place: TextPlace(of: offset, in: bytes), setting: setting, what: what, advice: advice))
  }

  /// The mistake of a name in `peers`.
  func mistake(_ peer: ConfigurationMistake.Peer) -> ConfigurationMistake {
    let item = peers?.items.first { $0.value.text.map { $0.utf8.elementsEqual(peer.name.utf8) } ?? false }
    return ConfigurationMistake(
      file: name, place: TextPlace(of: item?.offset ?? peers?.offset ?? 0, in: bytes), setting: "peers",
      what: peer.what, advice: peer.advice)
  }
}

// MARK: - Secrets

extension ConfigurationFile {
  /// Beginnings and parts of texts that only secrets have: a private key, an invitation, a password in a URL.
  private static let marks = ["-----BEGIN ", "syncstore1:"]

  /// What to do instead of writing a secret with that name into the file; nil if it names none.
  private static func adviceForSecret(named name: String) -> String? {
    let words = name.lowercased().split { !$0.isLetter }.map(String.init)
    let isSecret = words.contains { word in
      ["passphrase", "passwd", "password", "pass", "secret", "token", "credential", "key"].contains { mark in
        word == mark || word == mark + "s" || mark.count > 6 && word.contains(mark)
      }
    }
    guard isSecret else { return nil }
    return words.contains { ["token", "tokens"].contains($0) }
      ? "give a token to \"sync-cli join\", once: the store keeps what it needs"
      : "keep it in a file of its own, mode 600: \"passphrase_file\" names that of the store's passphrase"
  }

  /// Reports a text that is a secret, wherever it stands. The message does not repeat it.
  private mutating func refusesSecret(in member: LocatedJSON.Member, setting: String) -> Bool {
    guard let text = Self.secret(in: member.value) else { return false }
    note(
      "\"\(Text.printable(setting.utf8))\" holds a secret", at: text.offset, setting: setting,
      advice: "take it out, and replace the secret: others may have read it")
    return true
  }

  private static func secret(in json: LocatedJSON) -> LocatedJSON? {
    if let text = json.value.text { return isSecret(text) ? json : nil }
    for item in json.items { if let found = secret(in: item) { return found } }
    return nil
  }

  private static func isSecret(_ text: String) -> Bool {
    // Scalars: in a character a combining mark would hide what is before it.
    let text = text.unicodeScalars
    if marks.contains(where: { text.firstRange(of: $0.unicodeScalars) != nil }) { return true }
    // scheme://user:password@host
    guard let scheme = text.firstRange(of: "://".unicodeScalars) else { return false }
    let authority = text[scheme.upperBound...].prefix { $0 != "/" }
    return authority.contains("@") && authority.prefix { $0 != "@" }.contains(":")
  }
}

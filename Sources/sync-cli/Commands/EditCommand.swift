import SyncStore

/// `edit`: changes a value in the user's editor.
enum EditCommand {
  /// Larger values are for other tools than an editor.
  private static let largestValue: UInt64 = 16 << 20

  /// The bytes of a command without meaning for the shell, except that blanks part its words.
  private static let plain = Set(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ./_+-:@,".utf8)

  static let command = Command(
    "edit", "change a value in your editor", operands: [Operand("KEY")],
    notes: """
      The editor is $VISUAL, else $EDITOR, else vi; it runs through the shell, with the path of a file as its last argument.
      Numbers and other typed values are shown as "get --text" shows them, and are checked when they come back; in an object
      dates, UUIDs, bytes and the like are shown as "put" takes them. Nothing is written if the file is unchanged, or if the
      editor fails. Ends with 1 if the key is absent, or if its value was changed by another writer meanwhile: your text is
      kept then, and its path is told. A line end that the editor adds at the end of a value without one does not count.
      Until the editor ends, the text lies in a file that only you can read, in $XDG_RUNTIME_DIR, $TMPDIR or /tmp.
      """
  ) { invocation, output in
    let argument = invocation.operands[0]
    let key = try Key(bytes: argument.bytes)
    let editor = try editor(invocation)
    let opening = try invocation.opening(toWrite: true)
    let held = try TierCommands.fetching(key, invocation: invocation) {
      try invocation.withStore(opening) { try read(key, of: $0, argument) }
    }
    let text = try EditableText(held.value, shown: argument.shown)
    let draft = try DraftFile(named: key, holding: text.bytes)
    let edited: [UInt8]
    do {
      edited = try run(editor, on: draft, argument)
    } catch {
      draft.remove()
      throw error
    }
    guard edited != text.bytes else {
      draft.remove()
      try invocation.report(
        "\(argument.shown) is unchanged",
        json: JSON.object([KeyLine.member(key.bytes)]).with("changed", false),
        output)
      return .done
    }
    do {
      let bytes = try text.value(of: edited)
      try invocation.withStore(opening) { store in
        try write(bytes, under: key, replacing: held, in: store, argument)
      }
    } catch {
      let failure = Failure(error)
      throw Failure(failure.code, "\(failure.message): your text is kept in \(Text.printable(draft.path))")
    }
    draft.remove()
    if invocation.wantsJSON {
      try output.line(JSON.object([KeyLine.member(key.bytes)]).with("changed", true))
    }
    return .done
  }.printing(JSONReference.edit)

  private static func editor(_ invocation: Invocation) throws(Failure) -> String {
    if let editor = System.environment("VISUAL") ?? System.environment("EDITOR") { return editor }
    guard System.isTerminal(0), System.isTerminal(1) else {
      throw invocation.usage(
        "no editor", reason: "there is no terminal for vi",
        advice: "set EDITOR to a command that takes a file")
    }
    return "vi"
  }

  private static func read(_ key: Key, of store: Store, _ argument: Argument) throws -> VersionedValue {
    if let entry = try store.entry(key), entry.size > largestValue {
      throw Failure(
        .usage,
        "edit \(argument.shown): \(Text.size(entry.size)) are more than \(Text.size(largestValue)): "
          + "use \"get --output F\" and \"put --file F\"")
    }
    guard let held = try store.versioned(key) else {
      throw Failure(
        .notFound, "edit \(argument.shown): there is no such key: make it by \"sync-cli put\" first")
    }
    return held
  }

  /// Runs the editor, and reads what it left.
  private static func run(_ editor: String, on draft: DraftFile, _ argument: Argument) throws(Failure)
    -> [UInt8]
  {
    // A shell that waits for the editor would die of an interrupt that is meant for the editor.
    let isPlain = editor.utf8.allSatisfy { plain.contains($0) }
    let script = (isPlain ? "exec " : "") + editor + " \"$@\""
    let code: Int32
    do { code = try Subprocess.runInForeground(script, [draft.path]) } catch {
      throw Failure(error.code, "edit \(argument.shown): \(error.message)")
    }
    guard code == 0 else {
      throw Failure(
        .inputOutput,
        "edit \(argument.shown): \"\(Text.printable(editor.utf8))\" ended with \(code): nothing was changed: "
          + "set EDITOR to your editor if this is none")
    }
    return try draft.read(limit: Int(largestValue) + 1)
  }

  private static func write(
    _ bytes: [UInt8], under key: Key, replacing held: VersionedValue, in store: Store, _ argument: Argument
  ) throws {
    guard UInt64(bytes.count) <= largestValue else {
      throw Failure(.usage, "edit \(argument.shown): the text is longer than \(Text.size(largestValue))")
    }
    let version = try store.put(
      key, bytes, expecting: .version(held.version), type: held.value.type,
      expiration: held.value.deadline.map { .at($0) } ?? .never)
    guard version != nil else {
      throw Failure(
        .notFound,
        "edit \(argument.shown): nothing was written: another writer changed or deleted it meanwhile")
    }
  }
}

/// A value in the form in which it is edited.
private struct EditableText {
  private let type: ValueType
  private let shown: String
  /// Whether the file is the value itself, or text that stands for it.
  private let isValue: Bool
  private let endsLine: Bool
  /// The content of the file before it is edited.
  let bytes: [UInt8]

  init(_ value: Value, shown: String) throws(Failure) {
    (type, self.shown) = (value.type, shown)
    isValue = ![.bool, .int, .uint, .double, .float, .date, .uuid, .cbor].contains(value.type)
    endsLine = value.bytes.last == 0x0A
    guard !isValue else {
      bytes = value.bytes
      return
    }
    guard let text = ValueText.exactText(value.bytes, value.type) else {
      throw Failure(
        .usage,
        "edit \(shown): its \(value.type) has no exact form as text: use \"sync-cli dump\" and \"load\"")
    }
    bytes = text + [0x0A]
  }

  /// The value that the edited text stands for.
  func value(of edited: [UInt8]) throws(Failure) -> [UInt8] {
    var text = edited
    if isValue {
      if !endsLine, text.last == 0x0A { text.removeLast() }
    } else {
      while let last = text.last, [0x0A, 0x0D, 0x20].contains(last) { text.removeLast() }
    }
    guard let bytes = ValueText.bytes(of: text, as: type) else {
      throw Failure(.usage, "edit \(shown): the text is not of type \(type): \(ValueText.expectation(type))")
    }
    return bytes
  }
}

/// A file in a directory of its own, which no other user can enter: editors put copies next to a file.
private final class DraftFile {
  private let parent: Descriptor
  private let directoryName: [UInt8]
  private let directory: Descriptor
  private let name: [UInt8]
  let path: [UInt8]

  init(named key: Key, holding content: [UInt8]) throws(Failure) {
    parent = try Self.place()
    directoryName = Array("sync-cli-edit-\(UInt64.random(in: 0 ... .max))".utf8)
    try parent.makeDirectory(directoryName, mode: 0o700)
    directory = try parent.directory(directoryName)
    // The last part of the key, so that an editor recognizes a kind of file by its end.
    let last = key.bytes.split(separator: UInt8(ascii: "/")).last ?? []
    let isName = TreeWriter.objection(to: Array(last)) == nil && last.first != UInt8(ascii: "-")
    name = isName ? Array(last) : Array("value".utf8)
    path = Descriptor.joined(directory.path, name)
    try directory.creating(name, mode: 0o600).write(content)
  }

  /// The first directory for temporary files that exists.
  private static func place() throws(Failure) -> Descriptor {
    for name in ["XDG_RUNTIME_DIR", "TMPDIR"] {
      if let path = System.environmentBytes(name), let place = try? Descriptor.reading(path, waiting: false) {
        return place
      }
    }
    return try Descriptor.reading(Array("/tmp".utf8), waiting: false)
  }

  /// An editor may have replaced the file by another one of its name.
  func read(limit: Int) throws(Failure) -> [UInt8] { try directory.reading(name).readAll(limit: limit) }

  /// Removes the file and what the editor left next to it.
  func remove() {
    for name in (try? directory.names()) ?? [] { directory.remove(name) }
    parent.removeDirectory(directoryName)
  }
}

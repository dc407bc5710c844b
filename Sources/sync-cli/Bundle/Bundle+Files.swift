import SyncStore

/// Parts that need no open store.
extension Bundle {
  static func readme(_ time: String) -> String {
    """
    A bundle for a report on a problem, made by sync-cli \(Program.version) at \(time).

    Keys, values, passphrases, private keys and tokens are not in it. member-1, peer-1, device-1 stand for the
    same member, peer and device in all files; <store>, <path>, <address> and … for what was left out.

    machine.json    the kernel, the memory page, the file system of the store, limits of a process
    files.json      the files of the store, one a line; files named after a content are counted by directory
    segments.json   the headers of the journal's segments, one a line
    index.json      the header of the index
    catalogue.json  SQLite's check of the catalogue of large values, and the number of rows
    status.json     sync-cli status --json
    problems.json   sync-cli status --check --json, one problem a line
    peers.json      sync-cli peer list --json
    conflicts.json  counts of beaten values, unsent keys, and invitations
    configuration.json, log.txt   with --config and --log

    NAME.failed in place of NAME says why that part could not be made.

    """
  }

  static func json(_ report: StoreInspection.HeaderReport) -> JSON {
    let json: JSON = [
      "name": .string(report.name), "bytes": .integer(report.bytes), "header": .string(report.state),
    ]
    return report.fields.reduce(json) { $0.with($1.name, .integer($1.value)) }
  }

  static func catalogue(_ path: String, _ redactor: Redactor) throws -> JSON {
    guard let report = try StoreInspection(at: path).catalogue() else { return ["exists": false] }
    let json: JSON = [
      "exists": true, "integrity_check": .array(report.problems.map { .string(redactor.text($0)) }),
    ]
    return report.rows.reduce(json) { $0.with("rows_of_\($1.name)", .integer($1.value)) }
  }

  /// A line for each file, and one for each directory with files that are named after their content.
  static func files(_ path: String) throws -> [UInt8] {
    var counted: [(folder: String, files: Int, bytes: UInt64)] = []
    var lines: [UInt8] = []
    for file in try StoreInspection(at: path).files() {
      guard file.name.wholeMatch(of: Self.knownFile) == nil else {
        lines += Self.lines(["file": .string(file.name), "bytes": .integer(file.value)])
        continue
      }
      let slash = file.name.unicodeScalars.lastIndex(of: "/")
      let folder = slash.map { String(file.name[..<$0]) } ?? "."
      let shown = folder.wholeMatch(of: Self.knownFolder) == nil ? "…" : folder
      let index = counted.firstIndex { $0.folder == shown } ?? counted.endIndex
      if index == counted.endIndex { counted.append((shown, 0, 0)) }
      counted[index].files += 1
      counted[index].bytes += file.value
    }
    for entry in counted {
      lines += Self.lines([
        "others_in": .string(entry.folder), "files": .integer(entry.files), "bytes": .integer(entry.bytes),
      ])
    }
    return lines
  }

  /// File names that the store chooses itself. None is derived from a key or a value.
  private static var knownFile: Regex<Substring> {
    #/
    journal/(?:[0-9\-]+\.segment|reserve(?:\.[a-z]+)?)
    | blobs/packs/[0-9a-f]{1,16}\.pack | blobs/catalogue\.[a-z\-]+ | keys/(?:device\.pem|group|ring) | (?:STORE|control|ledger|index)(?:\.new)?
    /#
  }

  private static var knownFolder: Regex<Substring> {
    /(?:journal|keys|blobs(?:\/(?:objects|partial|quarantine|packs)(?:\/[0-9a-f]{2})?)?)|\./
  }

  /// The settings that the file names. Words and numbers stay; of texts only their number does.
  static func configuration(_ path: Argument, _ redactor: inout Redactor) throws -> [UInt8] {
    let file = try ConfigurationFile(at: path, waiting: false)
    var lines: [UInt8] = []
    for (setting, value) in file.settings {
      let shown = harmless(value, of: setting)
      lines += Self.lines(["setting": .string(setting.name), "value": shown])
    }
    for mistake in file.mistakes {
      let json: JSON = [
        "line": .integer(mistake.place.line), "column": .integer(mistake.place.column),
        "mistake": .string(redactor.text(mistake.what)),
      ]
      let known = Settings.all.first { $0.name == mistake.setting ?? "" }
      lines += Self.lines(json.with("setting", known.map { .string($0.name) }))
    }
    return lines
  }

  private static func harmless(_ value: JSON, of setting: Setting) -> JSON {
    switch value {
    case .number, .bool, .null: return value
    case .array(let items): return .string("<\(Text.count(items.count, noun: "text"))>")
    case .object: return .string("<object>")
    case .string(let text):
      for case .words(let words) in setting.form.choices where words.contains(text) { return value }
      return .string("<text>")
    }
  }

  /// The last lines of a log.
  static func log(_ path: Argument, lines: Int, _ redactor: Redactor) throws -> [UInt8] {
    let file = try Descriptor.reading(path.bytes, waiting: false)
    var content: [UInt8] = []
    while true {
      let part = try file.read(1 << 20)
      if part.isEmpty { break }
      content += part
      if content.count > maximumLogBytes { content.removeFirst(content.count - maximumLogBytes / 2) }
    }
    let kept = content.split(separator: 0x0A).suffix(lines)
    return kept.flatMap { line in
      Array(redactor.logLine(Text.printable(line)).utf8) + [0x0A]
    }
  }

  /// Bytes of a log in memory: of a longer one at least the last half of that is kept.
  private static let maximumLogBytes = 64 << 20
}

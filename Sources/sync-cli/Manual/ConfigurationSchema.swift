import SyncStore

/// The schemas of the daemon's configuration, made from the list of its settings: `schemas/config.md` for
/// people and the manual page, `schemas/config.schema.json` for editors (JSON Schema 2020-12).
enum ConfigurationSchema {
  /// The files, as `make schemas` writes them.
  static var pages: [ManualPages.Page] {
    [
      ManualPages.Page(file: "config.md", text: markdown),
      ManualPages.Page(file: "config.schema.json", text: json.indented() + "\n"),
    ]
  }

  // MARK: - Markdown

  static var markdown: String {
    var text = head
    text += "\n| setting | meaning | value | unit | default | bounds | at SIGHUP |\n"
    text += "| --- | --- | --- | --- | --- | --- | --- |\n"
    for setting in Settings.all { text += row(setting) }
    return text + tail
  }

  private static let head = """
    # The daemon's configuration

    `sync-cli serve --config F` reads one JSON object (RFC 8259) of at most 1 MiB, in which `// …` and `/* … */`
    comments may appear wherever a blank may. `sync-cli serve --check F` checks it: it names every mistake with
    line and column, each unknown name with the most similar setting, and ends with 2 if there is one. `serve`
    itself does not start with a mistake, and a reload (SIGHUP) keeps the configuration in use.

    `schemas/config.schema.json` has the same for editors (JSON Schema 2020-12). `make schemas` writes both from
    the list of settings in the program. A setting `a.b` is the member `b` of the object `a`.

    """

  private static let tail = """

    `--listen` overrides the file, and `--verbose` its `log_level`.

    A configuration holds no secret. A member that is named like one, such as `passphrase`, and a text that is
    one, such as a private key, an invitation, or a URL with a password, are refused. The passphrase of an
    encrypted store is in a file of its own, which `passphrase_file` names.

    ```json
    {
      // only this machine
      "listen": "127.0.0.1:7420",
      "peers": ["harbour"],
      "log_level": "notice",
      "blobs": { "take": 1048576, "max_bytes": 20000000000 }
    }
    ```

    """

  private static func row(_ setting: Setting) -> String {
    let bounds = setting.form.choices.compactMap { Self.bounds($0) }.joined(separator: "; ")
    let standard = setting.standard.map { code($0) } ?? setting.absence ?? ""
    let cells = [
      "`\(setting.name)`", setting.meaning, setting.form.choices.map { kind($0) }.joined(separator: ", or "),
      setting.unit?.rawValue ?? "", standard, bounds, setting.reload.rawValue,
    ]
    return "| " + cells.map { $0.isEmpty ? "–" : $0 }.joined(separator: " | ") + " |\n"
  }

  private static func kind(_ form: Setting.Form) -> String {
    switch form {
    case .text: "text"
    case .file: "path of a file"
    case .words(let words): words.map { "`\"\($0)\"`" }.joined(separator: ", ")
    case .whole: "whole number"
    case .list: "list of texts"
    case .object: "object"
    case .either: form.choices.map { kind($0) }.joined(separator: ", or ")
    }
  }

  private static func bounds(_ form: Setting.Form) -> String? {
    switch form {
    case .whole(let range):
      return range.upperBound == .max
        ? "from \(range.lowerBound)" : "\(range.lowerBound) to \(range.upperBound)"
    case .list(let most, let bytes) where most < .max:
      return "at most \(Text.count(most, noun: "text")) of at most \(bytes) bytes"
    default: return nil
    }
  }

  private static func code(_ json: JSON) -> String { "`\(String(decoding: json.encoded, as: UTF8.self))`" }

  // MARK: - JSON Schema

  static var json: JSON {
    [
      "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Configuration of sync-cli serve",
      "description": "Generated from the list of settings: see config.md.", "type": "object",
      "additionalProperties": false, "properties": properties(in: nil),
    ]
  }

  private static func properties(in parent: String?) -> JSON {
    .object(
      Settings.all.filter { $0.parent == parent }.map { setting in
        var schema: JSON = ["description": .string(description(setting))]
        let choices = setting.form.choices.map { self.schema(of: $0) }
        if choices.count == 1, case .object(let members) = choices[0] {
          for member in members { schema = schema.with(member.name, member.value) }
        } else {
          schema = schema.with("anyOf", .array(choices))
        }
        if case .object = setting.form {
          schema = schema.with("properties", properties(in: setting.name))
        }
        schema = schema.with("default", setting.standard).with("examples", [setting.example])
        return JSON.Member(name: setting.member, value: schema)
      })
  }

  private static func description(_ setting: Setting) -> String {
    let plain = setting.meaning.split(separator: "`", omittingEmptySubsequences: false).joined()
    let standard = setting.absence.map { " Default: \($0)." } ?? ""
    return plain.sentence + (setting.unit.map { " Unit: \($0.rawValue)." } ?? "") + standard
      + " At SIGHUP: \(setting.reload.rawValue)."
  }

  private static func schema(of form: Setting.Form) -> JSON {
    switch form {
    case .text: return ["type": "string"]
    case .file: return ["type": "string", "pattern": "^/"]
    case .words(let words): return ["enum": .array(words.map { .string($0) })]
    case .whole(let range):
      let schema: JSON = ["type": "integer", "minimum": .integer(range.lowerBound)]
      return schema.with("maximum", range.upperBound == .max ? nil : .integer(range.upperBound))
    case .list(let most, let bytes):
      let items: JSON = ["type": "string"]
      guard most < .max else { return ["type": "array", "items": items] }
      // The bound counts bytes; a text has no more characters than that.
      return [
        "type": "array", "maxItems": .integer(most), "items": items.with("maxLength", .integer(bytes)),
      ]
    case .object: return ["type": "object", "additionalProperties": false]
    case .either: return ["anyOf": .array(form.choices.map { schema(of: $0) })]
    }
  }
}

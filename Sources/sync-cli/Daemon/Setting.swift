import SyncStore

/// One setting of the daemon's configuration: all that its parser, schemas and manual page know of it.
struct Setting: Sendable {
  /// When a change of the file takes effect.
  enum Reload: String, Sendable { case applied = "taken over", restart = "needs a restart" }

  /// A unit, for schemas and messages.
  enum Unit: String, Sendable { case seconds, bytes }

  /// A value of the form that the setting has.
  enum Content: Equatable, Sendable {
    case text(String)
    case whole(UInt64)
    case list([String])
    case object
  }

  /// Stores the value in a configuration.
  typealias Application = @Sendable (Content, inout ServeConfiguration) -> Void

  /// Names within an object follow its name and a dot: `blobs.copies`.
  let name: String
  let form: Form
  let unit: Unit?
  /// The value without the setting, as JSON; nil if there is none, which `absence` describes.
  let standard: JSON?
  /// The meaning of a setting that is absent and has no default.
  let absence: String?
  let reload: Reload
  /// One sentence or more, with code between backticks.
  let meaning: String
  let example: JSON
  let apply: Application

  /// Creates a setting with a default value.
  init(
    _ name: String, _ form: Form, unit: Unit? = nil, default standard: JSON, reload: Reload = .applied,
    about: About, apply: @escaping Application
  ) {
    (self.name, self.form, self.unit, self.standard, self.reload) = (name, form, unit, standard, reload)
    (absence, meaning, example, self.apply) = (nil, about.meaning, about.example, apply)
  }

  /// Creates a setting that is off, or left as it is, when it is absent.
  init(
    _ name: String, _ form: Form, unit: Unit? = nil, absent absence: String, reload: Reload = .applied,
    about: About,
    apply: @escaping Application
  ) {
    (self.name, self.form, self.unit, self.absence) = (name, form, unit, absence)
    (standard, self.reload, meaning, example, self.apply) = (nil, reload, about.meaning, about.example, apply)
  }

  /// The text for a reader.
  struct About: Sendable {
    let example: JSON
    let meaning: String

    init(example: JSON, _ meaning: String) { (self.example, self.meaning) = (example, meaning) }
  }

  /// The name of the object that the setting is in; nil for the outermost.
  var parent: String? {
    name.firstIndex(of: ".").map { String(name[..<$0]) }
  }

  /// The name within that object.
  var member: String { parent.map { String(name.dropFirst($0.count + 1)) } ?? name }

  /// Something wrong with a value, as a clause that follows the setting's name, and what to write instead.
  struct Mistake: Error, Equatable {
    let what: String
    let advice: String
    /// The item of the list that is wrong; nil for the whole value.
    var item: Int? = nil
  }

  /// The value in JSON, if the setting can have it.
  func content(of json: JSON) throws(Mistake) -> Content {
    do throws(Mistake) {
      for choice in form.choices {
        if let content = try choice.content(of: json, unit: unit) { return content }
      }
    } catch {
      let near = error.advice.isEmpty ? "write \(form.words(unit))" : error.advice
      throw Mistake(what: error.what, advice: near, item: error.item)
    }
    throw Mistake(what: "is \(json.kind)", advice: "write \(form.words(unit))")
  }
}

extension Setting {
  /// The values that a setting can have.
  enum Form: Sendable {
    /// A text that `isValid` accepts. `words` describe it, with an article.
    case text(words: String, isValid: @Sendable (String) -> Bool)
    /// The absolute path of a file that must be there.
    case file
    case words([String])
    case whole(ClosedRange<UInt64>)
    /// A list of at most so many texts, each of at most so many bytes.
    case list(most: Int, bytes: Int)
    case object
    indirect case either(Form, or: Form)
  }
}

extension Setting.Form {
  /// The alternatives: a value must have one of these forms.
  var choices: [Setting.Form] {
    if case .either(let first, let second) = self { first.choices + second.choices } else { [self] }
  }

  /// For messages, with an article.
  func words(_ unit: Setting.Unit?) -> String {
    switch self {
    case .text(let words, _): return words
    case .file: return "the path of a file, from /"
    case .words(let words):
      let quoted = words.map { "\"\($0)\"" }
      guard quoted.count > 1 else { return quoted.joined() }
      return "\(quoted.dropLast().joined(separator: ", ")) or \(quoted[quoted.count - 1])"
    case .whole(let range):
      let most = range.upperBound == .max ? "" : " to \(range.upperBound)"
      return "a whole number\(unit.map { " of \($0.rawValue)" } ?? "") from \(range.lowerBound)\(most)"
    case .list(let most, _):
      return most == .max ? "a list of texts" : "a list of at most \(Text.count(most, noun: "text"))"
    case .object: return "an object"
    case .either: return choices.map { $0.words(unit) }.joined(separator: ", or ")
    }
  }

  /// The value, if it has this form, which is not `either`; nil for another kind of value.
  fileprivate func content(of json: JSON, unit: Setting.Unit?) throws(Setting.Mistake) -> Setting.Content? {
    switch (self, json) {
    case (.text(_, let isValid), .string(let text)):
      guard isValid(text) else { throw Setting.Mistake(what: "is not valid", advice: "") }
      return .text(text)
    case (.file, .string(let path)):
      try Self.checkFile(path)
      return .text(path)
    case (.words(let words), .string(let text)):
      if words.contains(where: { $0.utf8.elementsEqual(text.utf8) }) { return .text(text) }
      let near = ArgumentParser.nearest(to: text, in: words).map { "did you mean \"\($0)\"?" }
      throw Setting.Mistake(what: "is none of the words that it can be", advice: near ?? "")
    case (.whole(let range), .number(let text)):
      guard let number = UInt64(text) else {
        throw Setting.Mistake(what: "is \(text), no whole number in its bounds", advice: "")
      }
      guard range.contains(number) else {
        let bound = number < range.lowerBound ? "below \(range.lowerBound)" : "above \(range.upperBound)"
        let unit = unit.map { " \($0.rawValue)" } ?? ""
        throw Setting.Mistake(what: "is \(number)\(unit), \(bound)", advice: "")
      }
      return .whole(number)
    case (.list(let most, let bytes), .array(let items)): return .list(try Self.texts(items, most, of: bytes))
    case (.object, .object): return .object
    default: return nil
    }
  }

  private static func texts(_ items: [JSON], _ most: Int, of bytes: Int) throws(Setting.Mistake) -> [String] {
    guard items.count <= most else {
      throw Setting.Mistake(what: "has \(items.count) items, more than \(most)", advice: "leave some out")
    }
    var texts: [String] = []
    for (index, item) in items.enumerated() {
      guard let text = item.text else {
        throw Setting.Mistake(what: "has an item that is \(item.kind)", advice: "write a text", item: index)
      }
      guard text.utf8.count <= bytes else {
        throw Setting.Mistake(
          what: "has an item of \(text.utf8.count) bytes, more than \(bytes)", advice: "write a shorter one",
          item: index)
      }
      texts.append(text)
    }
    return texts
  }

  private static func checkFile(_ path: String) throws(Setting.Mistake) {
    guard path.hasPrefix("/") else { throw Setting.Mistake(what: "does not begin with /", advice: "") }
    let kind: Descriptor.Kind
    do throws(Failure) {
      // Opening a pipe without waiting succeeds, and takes nothing from it.
      kind = try Descriptor.reading(Array(path.utf8), waiting: false).status().kind
    } catch {
      throw Setting.Mistake(what: "names a file that cannot be read", advice: error.message)
    }
    if kind == .directory { throw Setting.Mistake(what: "names a directory", advice: "name a file") }
  }
}

extension JSON {
  /// The kind of the value, with an article.
  var kind: String {
    switch self {
    case .null: "null"
    case .bool(let flag): flag ? "true" : "false"
    case .number: "a number"
    case .string: "a text"
    case .array: "a list"
    case .object: "an object"
    }
  }
}

/// A member of an object that a command prints with `--json`.
struct JSONMember: Sendable {
  /// The kind of its value.
  indirect enum Form: Sendable {
    case text, flag, whole, bytes, time, milliseconds, seconds, amount
    /// Whatever the value of a key is in JSON.
    case value
    /// The beginning of a key: a text, or an object with `base64` if it is not UTF-8.
    case prefix
    case list(Form)
    case object([JSONMember])
    /// An object whose names are no fixed words: `name` says what they are.
    case table(Form, name: String)
  }

  let name: String
  let form: Form
  let meaning: String
  /// When the member is absent, as a clause that follows "Absent"; nil if every line of its kind has it.
  let absent: String?
  /// When it is `null`, as a clause that follows "Null"; nil if it never is.
  let null: String?

  init(_ name: String, _ form: Form, _ meaning: String, absent: String? = nil, null: String? = nil) {
    (self.name, self.form, self.meaning, self.absent, self.null) = (name, form, meaning, absent, null)
  }

  /// The same member, not in every line.
  func absent(_ clause: String) -> JSONMember { JSONMember(name, form, meaning, absent: clause, null: null) }

  /// The meaning and the conditions, as sentences.
  var sentences: String {
    let conditions = [absent.map { "absent \($0)" }, null.map { "null \($0)" }].compactMap { $0?.sentence }
    return ([meaning.sentence] + conditions).joined(separator: " ")
  }
}

extension JSONMember.Form {
  /// A few words for a reader.
  var words: String {
    switch self {
    case .text: "text"
    case .flag: "true or false"
    case .whole: "whole number"
    case .bytes: "bytes"
    case .time: "milliseconds since 1970"
    case .milliseconds: "milliseconds"
    case .seconds: "seconds"
    case .amount: "number"
    case .value: "any value"
    case .prefix: "text, or an object with base64"
    case .list(let form): "list: \(form.words)"
    case .object: "object"
    case .table(let form, let name): "object: \(form.words) by \(name)"
    }
  }

  /// The members of the object, or of each object of the list.
  var members: [JSONMember] {
    switch self {
    case .object(let members): members
    case .list(let form): form.members
    default: []
    }
  }

  /// The part of a path after the name of a member: `[]` for each list.
  fileprivate var suffix: String {
    if case .list(let form) = self { "[]" + form.suffix } else { "" }
  }
}

/// A kind of line that a command prints with `--json`.
struct JSONLine: Sendable {
  /// Which lines these are, such as "each key".
  let title: String
  let members: [JSONMember]

  init(_ title: String, _ members: [JSONMember]) { (self.title, self.members) = (title, members) }

  /// The members and those of the objects in them, each with its path, such as `members[].name`.
  var paths: [(path: String, member: JSONMember)] { Self.paths(of: members, below: "") }

  private static func paths(of members: [JSONMember], below path: String) -> [(String, JSONMember)] {
    members.flatMap { member in
      [(path + member.name, member)]
        + paths(of: member.form.members, below: path + member.name + member.form.suffix + ".")
    }
  }
}

extension JSONLine {
  /// Follows the path of a member that is null.
  static let nullMark = "=null"

  /// Compares an object that was printed with this kind. Returns the paths of its members, or what differs.
  func match(_ line: JSON) -> Result<[String], Reason> {
    do throws(Reason) { return .success(try Self.match(line, members, at: "")) } catch {
      return .failure(error)
    }
  }

  private static func match(
    _ json: JSON, _ members: [JSONMember], at path: String
  ) throws(Reason) -> [String] {
    guard case .object(let found) = json else {
      throw Reason("\(path.isEmpty ? "the line" : path) is no object")
    }
    var paths: [String] = []
    for item in found {
      guard let member = members.first(where: { $0.name == item.name }) else {
        throw Reason("\(path)\(item.name) is not declared")
      }
      paths.append(path + item.name)
      if item.value == .null, member.null != nil {
        paths.append(path + item.name + nullMark)
        continue
      }
      paths += try match(item.value, member.form, at: path + item.name)
    }
    for member in members where member.absent == nil && json[member.name] == nil {
      throw Reason("\(path)\(member.name) is missing")
    }
    return paths
  }

  /// Compares one value. Returns the paths of the members in it.
  private static func match(
    _ json: JSON, _ form: JSONMember.Form, at path: String
  ) throws(Reason) -> [String] {
    switch (form, json) {
    case (.value, _), (.text, .string), (.flag, .bool), (.seconds, .number), (.amount, .number),
      (.prefix, .string):
      return []
    case (.whole, .number(let text)), (.milliseconds, .number(let text)):
      if Int64(text) != nil || UInt64(text) != nil { return [] }
    case (.bytes, .number(let text)), (.time, .number(let text)): if UInt64(text) != nil { return [] }
    case (.prefix, .object(let members)):
      if members.count == 1, members[0].name == "base64", members[0].value.text != nil { return [] }
    case (.list(let form), .array(let items)):
      var paths: [String] = []
      for item in items { paths += try match(item, form, at: path + "[]") }
      return paths
    case (.object(let members), .object): return try match(json, members, at: path + ".")
    case (.table(let form, _), .object(let members)):
      for member in members { _ = try match(member.value, form, at: path + ".*") }
      return []
    default: break
    }
    throw Reason("\(path) is not \(form.words)")
  }
}

extension String {
  /// With a capital at the beginning and a full stop at the end.
  var sentence: String { prefix(1).uppercased() + dropFirst() + (hasSuffix(".") ? "" : ".") }
}

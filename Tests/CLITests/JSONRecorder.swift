import Foundation
import Testing

@testable import sync_cli

/// Runs commands with `--json` and compares what they print with the lines that they declare.
final class JSONRecorder {
  /// Commands whose output is no JSON whatever the options are.
  private static let others: Set<String> = ["completions"]

  /// A declared member, whichever commands share the declaration.
  private struct Declaration: Hashable {
    let name: String
    let meaning: String
    let condition: String

    init(_ member: JSONMember, isNull: Bool = false) {
      (name, meaning) = (member.name, member.meaning)
      condition = isNull ? "null \(member.null ?? "")" : "absent \(member.absent ?? "")"
    }
  }

  private var run: Set<String> = []
  private var lines: Set<String> = []
  private var printed: Set<Declaration> = []

  /// Runs a command with `--json`, and compares its lines.
  @discardableResult
  func callAsFunction(
    _ tool: Tool, _ words: String..., code: Int32 = 0, input: [UInt8]? = nil,
    environment: [String: String] = [:], sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Tool.Result {
    let result = try tool.start(words + ["--json"], input: input, environment: environment).finish()
    #expect(
      result.code == code, "sync-cli \(words.joined(separator: " ")): \(result.err)",
      sourceLocation: sourceLocation)
    record(words, result.out, sourceLocation)
    return result
  }

  /// Compares the lines that these words have printed.
  func record(_ words: [String], _ out: [UInt8], _ sourceLocation: SourceLocation = #_sourceLocation) {
    let called = Self.commands.filter { command in
      command.name == words.prefix(command.name.split(separator: " ").count).joined(separator: " ")
    }
    guard let command = called.max(by: { $0.name.count < $1.name.count }) else {
      Issue.record("no command: \(words)", sourceLocation: sourceLocation)
      return
    }
    run.insert(command.name)
    for line in out.split(separator: 0x0A) {
      if let objection = compare(Array(line), command) {
        let text = String(decoding: line, as: UTF8.self)
        Issue.record(
          "\(command.name): \(objection): declare it in JSONReference*.swift: \(text)",
          sourceLocation: sourceLocation)
      }
    }
  }

  private static let commands = Program.commands + [ManualCommand.command]

  /// What is wrong with a line; nil if it is of a declared kind.
  private func compare(_ bytes: [UInt8], _ command: Command) -> String? {
    guard let json = try? JSONParser.parse(bytes, comments: false) else { return "a line is no JSON" }
    var objections: [String] = []
    for line in command.json {
      switch line.match(json) {
      case .failure(let reason): objections.append("not \"\(line.title)\": \(reason.text)")
      case .success(let paths):
        lines.insert("\(command.name): \(line.title)")
        for (path, member) in line.paths {
          if paths.contains(path) { printed.insert(Declaration(member)) }
          if paths.contains(path + JSONLine.nullMark) { printed.insert(Declaration(member, isNull: true)) }
        }
        return nil
      }
    }
    return objections.isEmpty ? "it declares no JSON" : objections.joined(separator: "; ")
  }

  /// Reports commands that were not run, and lines and members that are declared and were not printed, except
  /// `rare` ones, each a member, "COMMAND: MEMBER" or "COMMAND: kind of line".
  func check(rare: Set<String>) {
    var missing: Set<String> = []
    for command in Self.commands where !Self.others.contains(command.name) {
      if !run.contains(command.name) { missing.insert(command.name) }
      for line in command.json {
        let isPrinted = lines.contains("\(command.name): \(line.title)")
        if !isPrinted { missing.insert("\(command.name): \(line.title)") }
        for (path, member) in line.paths where isPrinted {
          if !printed.contains(Declaration(member)), !Self.isWithin(missing, command, path) {
            missing.insert("\(command.name): \(path)")
          }
          if member.null != nil, !printed.contains(Declaration(member, isNull: true)) {
            missing.insert("\(command.name): \(path) null")
          }
        }
      }
    }
    let members = missing.filter { rare.contains(Self.member($0)) }
    for name in missing.subtracting(rare).subtracting(members).sorted() {
      Issue.record("declared, and never printed: \(name): print it in JSONReferenceTests, or name it as rare")
    }
    for name in rare.subtracting(missing).subtracting(members.map(Self.member)).sorted() {
      Issue.record("not rare: \(name): take it off the list")
    }
  }

  /// The name of the member at the end of a path.
  private static func member(_ name: String) -> String {
    String(name.split { $0 == "." || $0 == " " }.last ?? "")
  }

  /// Whether the object that a member is in is missing itself.
  private static func isWithin(_ missing: Set<String>, _ command: Command, _ path: String) -> Bool {
    path.indices.contains { index in
      let name = path[..<index].replacing("[]", with: "")
      return path[index] == "." && missing.contains("\(command.name): \(name)")
    }
  }
}

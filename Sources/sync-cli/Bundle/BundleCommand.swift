import Replication
import SyncStore

/// `bundle`: a redacted archive for a report on a problem.
enum BundleCommand {
  static let command = Command(
    "bundle", "collect what a report on a problem needs, without keys, values, names and addresses",
    operands: [Operand("FILE", .optional)],
    options: [
      Option("list", "only list what would be in it, with sizes"),
      Option("dry-run", "the same as --list"),
      Option("config", value: "F", "also the settings of this configuration of the daemon"),
      Option(
        "log", value: "F",
        "also the last lines of this log of the daemon (\"journalctl -u UNIT -o short-iso\")"),
      Option("log-lines", value: "N", "how many of them (default: 1000)"),
    ],
    notes: """
      FILE is a .tar.gz; without FILE a new one here is named after store and time, and - is standard output. In it \
      are the version, the machine, \
      figures of the store and of its files, what needs attention, members and peers, each as a text or as JSON. Keys, \
      values, passphrases, private keys and tokens are never read into it; names become member-1 or peer-1, hosts \
      and addresses peer-1 or <address>, paths <store> or <path>. Look into it before you send it: a log can hold \
      what no rule knows. A part that cannot be made says why, so that a damaged store gives a bundle, too. \
      Nothing is changed in the store.
      """
  ) { invocation, output in
    let isListed = invocation.has("list") || invocation.has("dry-run")
    let bundle = try Bundle(invocation)
    if isListed {
      for part in bundle.parts {
        if invocation.wantsJSON { try output.line(part.json) } else { try output.line(part.line) }
      }
      return .done
    }
    let archive = bundle.archive
    let name = invocation.operands.first?.bytes ?? Array(bundle.fileName.utf8)
    if name == [UInt8(ascii: "-")] {
      guard !output.isTerminal else {
        throw invocation.usage("-", reason: "an archive is no text for a terminal", advice: "name a file")
      }
      try output.write(archive)
      return .done
    }
    try create(name, archive)
    let failed = bundle.parts.count { $0.failure != nil }
    let shown = Text.printable(name)
    try invocation.report(
      "\(shown): \(Text.count(bundle.parts.count, noun: "part")), \(Text.size(archive.count))"
        + (failed > 0 ? ", \(failed) of them not made: each says why" : "")
        + ": look into it before you send it",
      json: [
        "file": .string(shown), "bytes": .integer(archive.count),
        "parts": .array(bundle.parts.map(\.json)),
      ], output)
    return .done
  }.printing(JSONReference.bundle)

  /// Writes a new file that only its owner may read. An existing one is not replaced.
  private static func create(_ path: [UInt8], _ content: [UInt8]) throws(Failure) {
    let slash = path.lastIndex(of: UInt8(ascii: "/"))
    let folder = slash.map { $0 == 0 ? [UInt8(ascii: "/")] : Array(path[..<$0]) } ?? [UInt8(ascii: ".")]
    let name = slash.map { Array(path[($0 + 1)...]) } ?? path
    let directory = try Descriptor.reading(folder, waiting: false)
    guard try directory.kind(of: name) == nil else {
      throw Failure(
        .usage, "bundle: \(Text.printable(path)) is there already: it is not replaced: name another file")
    }
    try directory.creating(name, mode: 0o600).write(content)
  }
}

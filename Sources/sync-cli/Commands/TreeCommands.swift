import SyncStore

/// `import` and `export`: between files and values.
enum TreeCommands {
  // MARK: - import

  static let importing = Command(
    "import", "store the files below a directory",
    operands: [Operand("DIR")],
    options: [
      Option("prefix", value: "P", "put P before each key"),
      Option("exclude", value: "GLOB", repeats: true, "leave out files and directories that match"),
      Option("delete", "delete the keys that begin with P and have no file in DIR"),
      Option("dry-run", "only list what would be stored (+ KEY) and deleted (- KEY)"), Confirmation.yes,
      ItemFailures.strict,
    ],
    notes: """
      The key of a file is P and its path relative to DIR. Symbolic links, devices, pipes and sockets are left out and
      counted. A file whose content is stored already is not stored again. A file or directory that cannot be read, or
      has vanished, is named; the others are stored. With --strict nothing is stored if a name can be no key or a file
      cannot be opened, and the first failure after that ends the command: what was stored before it stays.
      GLOB is a pattern as for "sync-cli list --glob". One without a slash matches the name of a file or directory anywhere, one
      with a slash the path below DIR, one with a slash at its end only directories; the keys of what it leaves out are not deleted.
      --delete needs --prefix, which may be empty for the whole store. It asks on a terminal; elsewhere it needs --yes for more than
      \(Confirmation.unconfirmedDeletes) keys. It deletes nothing if a directory cannot be read, and no key that was written since it looked.
      """
  ) { invocation, output in
    let root = try directory(invocation)
    let prefix = invocation.prefix(invocation.value("prefix"))
    let filter = try filter(invocation)
    guard !invocation.has("delete") || invocation.has("prefix") else {
      throw invocation.usage(
        "--delete", reason: "without --prefix all other keys of the store would go",
        advice: "give --prefix P, or --prefix '' for the whole store")
    }
    let isDryRun = invocation.has("dry-run")
    return try invocation.withStore(toWrite: !isDryRun) { store in
      let tree = try TreeWalk(root, filter)
      let mirror = try invocation.has("delete") ? TreeMirror(store, prefix: prefix, tree, filter) : nil
      if !isDryRun { try mirror?.confirm(invocation) }
      var importer = Importer(
        store: store, root: root, prefix: prefix,
        progress: Progress("import", totalBytes: tree.totalBytes, enabled: invocation.showsProgress),
        failures: ItemFailures(invocation))
      if isDryRun { importer.preview = { try invocation.show($0, as: .put, output) } }
      try importer.run(tree)
      if isDryRun {
        for key in mirror?.keys ?? [] { try invocation.show(key, as: .delete, output) }
      } else {
        try mirror?.delete()
      }
      if tree.skipped > 0 {
        Diagnostics.report(
          "import: left out \(Text.count(tree.skipped, noun: "entry", plural: "entries")): symbolic links and special files have no content"
            + " of their own: copy them in another way")
      }
      try report(importer, of: tree, mirror: mirror, invocation: invocation, output: output)
      try importer.failures.check()
      return .done
    }
  }.printing(JSONReference.importing)

  private static func filter(_ invocation: Invocation) throws(Failure) -> PathFilter {
    let patterns = invocation.values["exclude"] ?? []
    do { return try PathFilter(patterns.map(\.bytes)) } catch {
      let shown = patterns.map(\.shown).joined(separator: " --exclude ")
      throw invocation.usage(
        "--exclude \(shown)", reason: error.text, advice: "put \\ before a literal * ? [ or \\")
    }
  }

  private static func report(
    _ importer: Importer, of tree: TreeWalk, mirror: TreeMirror?, invocation: Invocation, output: Output
  ) throws {
    let isDryRun = invocation.has("dry-run")
    let seconds = importer.progress.seconds
    let deleted = isDryRun ? mirror?.keys.count : mirror?.deleted
    let done = isDryRun ? "would import" : "imported"
    let gone =
      deleted.map { ", \(isDryRun ? "would delete" : "deleted") \(Text.count($0, noun: "key"))" } ?? ""
    var json: JSON = [
      "files": .integer(importer.stored), "bytes": .integer(importer.bytes),
      "unchanged": .integer(importer.unchanged), "skipped": .integer(tree.skipped),
      "seconds": .real(seconds), "failed": .integer(importer.failures.count),
    ]
    json = json.with("deleted", deleted.map { .integer($0) })
    try invocation.report(
      "\(done) \(Text.count(importer.stored, noun: "file")), \(Text.size(importer.bytes)), \(importer.unchanged) unchanged"
        + "\(gone), in \(Text.decimal(seconds)) s",
      json: isDryRun ? json.with("dry_run", true) : json, output)
  }

  private static func directory(_ invocation: Invocation) throws -> Descriptor {
    let root = try Descriptor.reading(invocation.operands[0].bytes, waiting: false)
    guard try root.status().kind == .directory else {
      throw invocation.usage(
        invocation.operands[0].shown, reason: "it is no directory",
        advice: "give a directory, or use \"sync-cli put KEY --file F\"")
    }
    return root
  }

  /// The key with these bytes; the error names the file if they are no valid key.
  static func key(_ bytes: [UInt8]) throws(Failure) -> Key {
    do { return try Key(bytes: bytes) } catch {
      throw Failure(
        .usage, "import \(Text.printable(bytes)): \(error.message): rename the file, or use another --prefix")
    }
  }

  // MARK: - export

  static let exporting = Command(
    "export", "write values as files below a directory",
    operands: [Operand("DIR")],
    options: [
      Option("prefix", value: "P", "only keys that begin with P, which is taken off"), ItemFailures.strict,
    ],
    notes: """
      Each file is replaced at once or not at all. Keys that would leave DIR, or are no path of a file, are named and
      passed over (3); so is one that begins with another one and a slash. Large values that are not here are fetched from
      a peer that has them; those that cannot be had (4), damaged keys (5) and files that cannot be written (7) are named,
      too, and the others are written. With --strict nothing is written if one of the keys can be no file, and the first
      failure after that ends the command.
      """
  ) { invocation, output in
    let prefix = invocation.prefix(invocation.value("prefix"))
    // Large values are written by path, which must be text.
    _ = try invocation.path(invocation.operands[0])
    return try TierCommands.withAllValues(invocation) { store in
      var exporter = Exporter(store, invocation, prefix: prefix)
      let seconds = try exporter.run(into: invocation.operands[0])
      try invocation.report(
        "exported \(Text.count(exporter.files, noun: "file")), \(Text.size(exporter.bytes)), in \(Text.decimal(seconds)) s",
        json: [
          "files": .integer(exporter.files), "bytes": .integer(exporter.bytes), "seconds": .real(seconds),
          "failed": .integer(exporter.failures.count),
        ], output)
      try exporter.failures.check()
      return .done
    }
  }.printing(JSONReference.exporting)
}

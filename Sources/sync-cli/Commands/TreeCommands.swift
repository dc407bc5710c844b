import SyncStore

/// `import` and `export`: files on one side, values on the other.
enum TreeCommands {
  // MARK: - import

  static let importing = Command(
    "import", "store the files below a directory",
    operands: [Operand("DIR")],
    options: [Option("prefix", value: "P", "put P before each key")],
    notes: """
      The key of a file is P and its path relative to DIR. Symbolic links, devices, pipes and sockets are left out and
      counted. A file whose content is stored already is not stored again.
      """
  ) { invocation, output in
    let root = try directory(invocation)
    let prefix = invocation.prefix(invocation.value("prefix"))
    return try invocation.withStore { store in
      let tree = try TreeWalk(root)
      for file in tree.files { _ = try key(prefix + file.path) }
      var importer = Importer(
        store: store, root: root, prefix: prefix,
        progress: Progress("import", totalBytes: tree.totalBytes, enabled: invocation.showsProgress))
      try importer.run(tree)
      if tree.skipped > 0 {
        Diagnostics.report(
          "import: left out \(tree.skipped) that are no regular files: symbolic links and special files have no content of"
            + " their own: copy them in another way")
      }
      let seconds = importer.progress.seconds
      try invocation.tell(
        "imported \(Text.count(importer.stored, "file")), \(Text.size(importer.bytes)), \(importer.unchanged) unchanged"
          + ", in \(Text.decimal(seconds)) s",
        json: [
          "files": .integer(importer.stored), "bytes": .integer(importer.bytes),
          "unchanged": .integer(importer.unchanged), "skipped": .integer(tree.skipped),
          "seconds": .real(seconds),
        ], output)
      return .done
    }
  }

  private static func directory(_ invocation: Invocation) throws -> Descriptor {
    let root = try Descriptor.reading(invocation.operands[0].bytes, waiting: false)
    guard try root.status().kind == .directory else {
      throw invocation.usage(
        invocation.operands[0].shown, "it is no directory",
        "give a directory, or use \"sync-cli put KEY --file F\"")
    }
    return root
  }

  /// The key of these bytes; the error names the file where it can be none.
  static func key(_ bytes: [UInt8]) throws(Failure) -> Key {
    do { return try Key(bytes: bytes) } catch {
      throw Failure(.usage, "import \(Text.printable(bytes)): \(error.message)")
    }
  }

  // MARK: - export

  static let exporting = Command(
    "export", "write values as files below a directory",
    operands: [Operand("DIR")],
    options: [Option("prefix", value: "P", "only keys that begin with P, which is taken off")],
    notes: """
      Each file is replaced at once or not at all. Keys that would leave DIR, or are no path of a file, are refused
      before anything is written; so is one that begins with another one and a slash. Large values that are not here are
      fetched from a peer that has them. Ends with 5 if keys are damaged: the others are written, and those named.
      """
  ) { invocation, output in
    let prefix = invocation.prefix(invocation.value("prefix"))
    // Large values are written by their path.
    _ = try invocation.path(invocation.operands[0])
    return try TierCommands.withAllValues(invocation) { store in
      var totalBytes: UInt64 = 0
      let range = KeyRange(prefix: prefix)
      var directories = NestedPaths()
      _ = try store.snapshot().scanReadable(range) { entry in
        totalBytes += entry.size
        let path = Array(entry.key.bytes.dropFirst(prefix.count))
        guard let objection = TreeWriter.objection(to: path) ?? directories.objection(to: path) else {
          return
        }
        throw Failure(
          .refused,
          "export \(Text.printable(entry.key.bytes)): \(objection): no file of that name can lie in"
            + " \(invocation.operands[0].shown): leave it out by --prefix")
      }
      let writer = try TreeWriter(invocation.operands[0].bytes)
      var progress = Progress("export", totalBytes: totalBytes, enabled: invocation.showsProgress)
      defer { progress.finish() }
      var (files, bytes): (Int, UInt64) = (0, 0)
      var unreadable = Unreadable("export")
      let doubts = try store.snapshot().scanReadable(range) { entry in
        do {
          guard try export(entry, of: store, as: Array(entry.key.bytes.dropFirst(prefix.count)), by: writer)
          else { return }
        } catch let error as StoreError {
          guard error.code != .blobUnavailable else {
            throw TierCommands.unfetched(entry.key, invocation, error)
          }
          return try unreadable.note(entry.key, error)
        }
        files += 1
        bytes += entry.size
        progress.update(bytes: bytes, Text.count(files, "file"))
      }.doubts
      try writer.finish()
      progress.finish()
      unreadable.note(doubts)
      try invocation.tell(
        "exported \(Text.count(files, "file")), \(Text.size(bytes)), in \(Text.decimal(progress.seconds)) s",
        json: ["files": .integer(files), "bytes": .integer(bytes), "seconds": .real(progress.seconds)], output
      )
      try unreadable.check()
      return .done
    }
  }

  /// False if the key was deleted meanwhile.
  private static func export(_ entry: Entry, of store: Store, as path: [UInt8], by writer: TreeWriter) throws
    -> Bool
  {
    if entry.blob == nil {
      guard let value = try store.get(entry.key) else { return false }
      try writer.make(path, holding: value.bytes)
      return true
    }
    return try writer.make(path) { try store.export(entry.key, toFileAt: $0) }
  }
}

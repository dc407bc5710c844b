import SyncStore

/// `compact`: reclaims the space of superseded records now instead of waiting until there is enough of it.
enum CompactCommand {
  static let command = Command(
    "compact", "give the space of superseded records back",
    notes: "Done by itself when it is worth it. Others go on reading and writing meanwhile."
  ) { invocation, output in
    try invocation.withStore(toWrite: true) { store in
      let gained = try store.compact()
      let left = try store.status().journalBytes
      if invocation.wantsJSON {
        try output.line(
          JSON.object([
            .init(name: "gained_bytes", value: .integer(gained)),
            .init(name: "journal_bytes", value: .integer(left)),
          ]))
      } else if !invocation.isQuiet {
        try output.line("\(Text.size(gained)) given back, \(Text.size(left)) left")
      }
      return .done
    }
  }.printing(JSONReference.compact)
}

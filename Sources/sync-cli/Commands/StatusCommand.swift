import SyncStore

/// `status`: sizes, counts, and how far the other copies are.
enum StatusCommand {
  static let command = Command("status", "show sizes, counts, peers and what needs attention") {
    invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let (status, actor) = (try store.status(), try store.actor)
      if invocation.wantsJSON {
        let prefixes = try store.scope.map { JSON.array($0.prefixes.map { .string(Text.printable($0)) }) }
        try output.line(json(store, actor, status).with("prefixes", prefixes))
      } else {
        for line in lines(store, actor, status) { try output.line(line) }
        if let scope = try store.scope {
          let more = try store.isWidening ? "; more are still to come: see \"sync-cli pull\"" : ""
          try output.line(
            "holds      only keys that begin with \(Text.printable(scope.description.utf8))\(more)")
        }
      }
      return .done
    }
  }

  private static func lines(_ store: Store, _ actor: ActorID, _ status: StoreStatus) -> [String] {
    var lines = [
      "store      \(store.name), \(store.path)", "id         \(store.id)", "actor      \(actor)",
      "keys       \(status.keys), \(Text.size(status.liveBytes)); \(status.tombstones) deleted",
      "blobs      \(Text.count(status.blobKeys, "key")), \(Text.size(status.blobBytes))",
      "journal    \(Text.count(status.segments, "segment")), \(Text.size(status.journalBytes)), position \(status.position)",
    ]
    if status.conflicts > 0 {
      lines.append("conflicts  \(status.conflicts) beaten values are kept: see \"sync-cli conflicts list\"")
    }
    if status.parked > 0 {
      lines.append("parked     \(status.parked) keys wait for a time that the clock has not reached")
    }
    if status.damagedPlaces > 0 {
      lines.append("damaged    \(Text.count(status.damagedPlaces, "place")): see \"sync-cli verify\"")
    }
    if let warning = store.clockWarning { lines.append("clock      \(warning)") }
    return lines
  }

  private static func json(_ store: Store, _ actor: ActorID, _ status: StoreStatus) -> JSON {
    [
      "name": .string(store.name), "path": .string(store.path), "store": .string("\(store.id)"),
      "actor": .string("\(actor)"), "keys": .integer(status.keys), "bytes": .integer(status.liveBytes),
      "tombstones": .integer(status.tombstones), "blob_keys": .integer(status.blobKeys),
      "blob_bytes": .integer(status.blobBytes), "segments": .integer(status.segments),
      "journal_bytes": .integer(status.journalBytes), "position": .integer(status.position),
      "conflicts": .integer(status.conflicts), "parked": .integer(status.parked),
      "damaged_places": .integer(status.damagedPlaces),
    ]
  }
}

import SyncStore

/// `unsent`: keys whose current state no other copy is known to have.
enum UnsentCommand {
  static let command = Command(
    "unsent", "show the keys written here that no other member is known to have",
    options: [
      Option("limit", value: "N", "at most N keys"),
      Option("drop", "on a copy that may not write: give these writes up, and show them"),
    ],
    notes: """
      One key a line, in the order of the writes: what would be lost with this machine. A member has a write once it has acknowledged it,
      to this copy; that it came there by way of others is not known here. A key that was deleted here has a "-" before it.
      On a copy that is read-only or revoked, no member accepts these writes. They stay here, and leave with the next sync if the copy may
      write again ("peer set-right" on another member). --drop gives them up for good: the keys are absent until the next sync brings
      what the other members hold of them. Save what you need with "get" or "export" before. A revoked copy cannot sync.
      """
  ) { invocation, output in
    if invocation.has("drop") { return try drop(invocation, output) }
    var left = try invocation.integer("limit", in: 1...Int.max) ?? .max
    return try invocation.withStore(toWrite: false) { store in
      var position = try OtherCopies(store).acknowledged
      while left > 0 {
        // Page by page: a copy that never synced may have millions.
        let writes = try store.ownWrites(after: position, limit: min(left, 1000))
        guard let last = writes.last else { break }
        for write in writes { try output.line(write, asJSON: invocation.wantsJSON) }
        (position, left) = (last.position, left - writes.count)
      }
      return .done
    }
  }.printing(JSONReference.unsent)

  private static func drop(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    guard !invocation.has("limit") else {
      throw Failure(
        .usage, "unsent: --limit and --drop do not go together: --drop gives up all: leave --limit out")
    }
    return try invocation.withStore { store in
      let position = try OtherCopies(store).acknowledged
      while true {
        let dropped = try store.dropOwnWrites(after: position)
        if dropped.isEmpty { return .done }
        for write in dropped { try output.line(write, asJSON: invocation.wantsJSON) }
      }
    }
  }
}

extension Output {
  fileprivate func line(_ write: OwnWrite, asJSON: Bool) throws {
    if asJSON {
      return try line(
        JSON.object([
          KeyLine.member(write.key.bytes), .init(name: "deleted", value: .bool(write.isDelete)),
          .init(name: "time_ms", value: .integer(write.stamp.milliseconds)),
          .init(name: "position", value: .integer(write.position)),
        ]))
    }
    try self.write(Array((write.isDelete ? "- " : "  ").utf8) + shown(key: write.key.bytes) + [0x0A])
  }
}

import SyncStore

/// `expire` and `ttl`: when a value expires.
enum ExpiryCommands {
  static let expire = Command(
    "expire", "change when a value expires, and not the value",
    operands: [Operand("KEY"), Operand("SPAN", .optional)],
    options: [Option("never", "keep the value until it is deleted")],
    notes: """
      SPAN counts from now: 90s, 30m, 1h, 7d … Ends with 1 if the key is absent: a value that has expired cannot come back.
      The change is a new write of the same value; the bytes of a large one are not copied.
      """
  ) { invocation, output in
    let argument = invocation.operands[0]
    let key = try Key(bytes: argument.bytes)
    let expiration = try expiration(invocation)
    return try TierCommands.fetching(key, invocation: invocation) {
      try invocation.withStore { store in
        guard try store.expire(key, expiration) else { throw absent(argument, invocation) }
        if invocation.wantsJSON { try output.line(json(key, try store.deadline(of: key))) }
        return .done
      }
    }
  }.printing(JSONReference.expiry)

  private static func expiration(_ invocation: Invocation) throws(Failure) -> Expiration {
    switch (invocation.operands.dropFirst().first, invocation.has("never")) {
    case (nil, true): return .never
    case (nil, false):
      throw invocation.usage("SPAN is missing", reason: "no time is given", advice: "give 1h, or --never")
    case (.some, true):
      throw invocation.usage("SPAN and --never", reason: "both are given", advice: "leave out one")
    case (let span?, false):
      guard let milliseconds = Text.milliseconds(span.text) else {
        throw invocation.usage(
          "\"\(span.shown)\"", reason: "not a span of time", advice: "write 90s, 30m, 1h or 7d, or --never")
      }
      return .after(Lifetime(milliseconds: milliseconds))
    }
  }

  static let ttl = Command(
    "ttl", "show the seconds until a value expires", operands: [Operand("KEY")],
    notes: """
      A whole number, rounded up, or the word "never", alone on standard output. Ends with 1 if the key is absent.
      """
  ) { invocation, output in
    let argument = invocation.operands[0]
    let key = try Key(bytes: argument.bytes)
    return try invocation.withStore(toWrite: false) { store in
      guard let entry = try store.entry(key) else { throw absent(argument, invocation) }
      if invocation.wantsJSON {
        try output.line(json(key, entry.deadline))
      } else {
        try output.line(entry.deadline.map { "\(secondsLeft(until: $0))" } ?? "never")
      }
      return .done
    }
  }.printing(JSONReference.expiry)

  private static func secondsLeft(until deadline: UInt64) -> UInt64 {
    let now = System.wallMilliseconds
    return deadline > now ? (deadline - now + 999) / 1000 : 0
  }

  private static func json(_ key: Key, _ deadline: UInt64?) -> JSON {
    JSON.object([KeyLine.member(key.bytes)])
      .with("expires", deadline.map { .integer($0) } ?? .null)
      .with("seconds", deadline.map { .integer(secondsLeft(until: $0)) } ?? .null)
  }

  private static func absent(_ argument: Argument, _ invocation: Invocation) -> Failure {
    Failure(
      .notFound,
      "\(invocation.command.name) \(argument.shown): there is no such key, or it has expired: "
        + "\"sync-cli list\" shows those there are")
  }
}

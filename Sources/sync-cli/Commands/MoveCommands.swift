import SyncStore

/// `mv` and `cp`: a value under another key.
enum MoveCommands {
  private static let force = Option("force", "replace a value that NEW has")

  static let mv = Command(
    "mv", "give a value another key", operands: [Operand("OLD"), Operand("NEW")], options: [force],
    notes: """
      Type and deadline go with the value. It is one transaction: no reader sees both keys, or neither. Ends with 1 if OLD is
      absent, or if NEW has a value and --force is not given.
      """
  ) { try transfer($0, $1) }.printing(JSONReference.move)

  static let cp = Command(
    "cp", "copy a value to another key", operands: [Operand("OLD"), Operand("NEW")], options: [force],
    notes: """
      Type and deadline are those of OLD. Both keys refer to the bytes of a large value: they take their space once. Ends with 1
      if OLD is absent, or if NEW has a value and --force is not given.
      """
  ) { try transfer($0, $1) }.printing(JSONReference.move)

  private static func transfer(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    let (name, isMove) = (invocation.command.name, invocation.command.name == mv.name)
    let (old, new) = (invocation.operands[0], invocation.operands[1])
    let (source, target) = (try Key(bytes: old.bytes), try Key(bytes: new.bytes))
    guard source != target else {
      throw invocation.usage(
        "\(old.shown) \(new.shown)", reason: "OLD and NEW are one key", advice: "give another NEW")
    }
    return try TierCommands.fetching(source, invocation: invocation) {
      try invocation.withStore { store in
        try store.transaction { transaction in
          guard try transaction.contains(source) else {
            throw Failure(
              .notFound,
              "\(name) \(old.shown): there is no such key: \"sync-cli list\" shows those there are")
          }
          if !invocation.has(force.name), try transaction.contains(target) {
            throw Failure(
              .notFound,
              "\(name) \(old.shown) \(new.shown): \(new.shown) has a value: nothing was changed: give --force to replace it"
            )
          }
          try transaction.copy(source, to: target)
          if isMove { try transaction.delete(source) }
        }
        if invocation.wantsJSON {
          try output.line(
            JSON.object([KeyLine.member(target.bytes)]).with("from", KeyLine.prefix(source.bytes)))
        }
        return .done
      }
    }
  }
}

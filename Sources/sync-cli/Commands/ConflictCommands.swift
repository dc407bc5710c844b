import SyncStore

/// `conflicts show` and `conflicts restore`: beaten concurrent values and their winners.
enum ConflictCommands {
  static let show = Command(
    "conflicts show", "show a key's value and the concurrent values that lost to it",
    operands: [Operand("KEY")],
    notes: "The beaten ones are numbered, newest first: \"conflicts restore\" takes the number."
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let explanation = try explanation(invocation, store)
      if invocation.wantsJSON {
        try output.line(
          JSON.object([])
            .with("current", InspectCommands.valued(explanation.winner))
            .with("beaten", .array(explanation.beaten.map(InspectCommands.valued))))
        return .done
      }
      let rows =
        [("now", explanation.winner)]
        + explanation.beaten.enumerated().map { ("\($0.offset + 1)", $0.element) }
      for (number, entry) in rows {
        try output.line(
          "\(number)  \(InspectCommands.content(entry))  \(InspectCommands.stamp(entry))  \(entry.dot.actor):\(entry.dot.sequence)"
        )
      }
      return .done
    }
  }.printing(JSONReference.showConflict)

  static let restore = Command(
    "conflicts restore", "write a beaten value again, so that it counts everywhere",
    operands: [Operand("KEY")],
    options: [Option("number", value: "N", "which of them, as \"conflicts show\" numbers them (default: 1)")]
  ) { invocation, output in
    let number = try invocation.integer("number", in: 1...100_000) ?? 1
    return try invocation.withStore { store in
      let explanation = try explanation(invocation, store)
      guard number <= explanation.beaten.count else {
        throw Failure(
          .notFound,
          "conflicts restore \(invocation.operands[0].shown): only \(Text.count(explanation.beaten.count, noun: "beaten value")) kept: "
            + "\"sync-cli conflicts show\" lists them")
      }
      let beaten = explanation.beaten[number - 1]
      try store.restore(beaten)
      try invocation.report(
        "\(invocation.operands[0].shown) is \(InspectCommands.content(beaten)) again",
        json: ["restored": .string("\(beaten.dot)")], output)
      return .done
    }
  }.printing(JSONReference.restoreConflict)

  private static func explanation(_ invocation: Invocation, _ store: Store) throws -> Explanation {
    let key = try Key(bytes: invocation.operands[0].bytes)
    guard let explanation = try store.explain(key), !explanation.beaten.isEmpty else {
      throw Failure(
        .notFound,
        "\(invocation.command.name) \(invocation.operands[0].shown): no beaten value of it is kept: "
          + "\"sync-cli conflicts list\" shows those there are")
    }
    return explanation
  }
}

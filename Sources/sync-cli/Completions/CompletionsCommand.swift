/// `completions`: scripts for shells.
enum CompletionsCommand {
  static let command = Command(
    "completions", "print a script with which a shell completes commands, options, keys and peers",
    operands: [Operand("bash|zsh|fish")],
    notes: """
      The head of the script says how to use and install it. Names of peers and keys come from the store
      that the line names. Those of an encrypted store are not offered, and values never are. Keys are
      offered up to the next "/" or ":". In a store with too many to sort them within 0.18 s, some
      of those written last are offered: SYNC_COMPLETE_TIMEOUT can be set to more milliseconds.
      """
  ) { invocation, output in
    let operand = invocation.operands[0]
    guard let script = CompletionScript(rawValue: operand.text) else {
      throw invocation.usage(
        "\"\(operand.shown)\"", reason: "no shell that is known", advice: "write bash, zsh or fish")
    }
    try output.write(Array(script.text(for: Program.commands, globals: Help.globals).utf8))
    return .done
  }
}

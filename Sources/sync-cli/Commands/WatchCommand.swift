import SyncStore

/// `watch`: changes as they happen.
enum WatchCommand {
  static let command = Command(
    "watch", "show changes as they happen, one a line",
    operands: [Operand("PREFIX", .optional)],
    options: [
      Option("from", value: "POSITION", "begin there instead of now"),
      Option("initial", "show the keys that are there first, then what changes"),
      Option("once", "end after the first change"),
      Option("exec", value: "CMD", "run sh -c CMD for each line, one at a time"),
    ],
    notes: """
      A line is put or delete, a tab, and the key. With --json it is
      {"event","key","value","type","position"}, with the key and the value as in "sync-cli get --json"; a
      large value that is not here has "size" and "blob" instead. Changes by other processes, the daemon and
      other copies count. A deadline that passes is no change.

      POSITION is that of a line: changes after it follow. The last one is told on standard error at the end,
      without --quiet. It can also be a number of "sync-cli log": the change there is the first. 0 is the
      beginning of the journal, which has the latest write of each key.

      With --initial the keys come as lines present, then a line ready, then changes: no write is missed or
      shown twice. A line gap means that changes were missed: deletes after the position that are no longer
      kept, or a position that is not one of this copy. With --initial all keys are shown after it; without,
      the next change follows. With --initial and --from, keys are shown only after a gap.

      CMD gets SYNC_EVENT, SYNC_KEY, SYNC_TYPE, SYNC_POSITION and SYNC_STORE in its environment, and the value
      on standard input. A key with a zero byte is in SYNC_KEY_BASE64 instead. SYNC_MISSING is 1 if the value
      is not here. A CMD that fails is told on standard error, and the watch goes on.

      SIGINT, SIGTERM, and the end of the program that reads the lines end it with 0. A CMD that is running
      then gets SIGTERM, and its change is the next one of the position that is told.
      """
  ) { invocation, output in
    let start = try start(invocation)
    // Before the signals are blocked, so that the passphrase prompt can be interrupted.
    let opening = try invocation.opening(toWrite: false)
    // Before any thread starts: threads inherit the mask.
    System.blockSignals()
    return try invocation.withStore(opening) { store in
      try Watch.run(store, from: start.map { try $0(store) }, invocation: invocation, output: output)
      return .done
    }
  }.printing(JSONReference.watch)

  /// The position in `--from`, which may need the store; nil without the option.
  private static func start(_ invocation: Invocation) throws -> ((Store) throws -> ChangePosition)? {
    guard let argument = invocation.value("from") else { return nil }
    if let number = UInt64(argument.text) {
      guard number > 1 else { return { _ in .beginning } }
      return { store in
        ChangePosition("\(try store.actor):\(number - 1):0") ?? .beginning
      }
    }
    guard let position = ChangePosition(argument.text) else {
      throw invocation.usage(
        "--from \(argument.shown)", reason: "no position",
        advice: "give one that a watch has told, a number of \"sync-cli log\", or 0 for the beginning")
    }
    return { _ in position }
  }
}

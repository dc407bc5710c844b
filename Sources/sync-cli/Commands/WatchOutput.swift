import SyncStore

/// One line of `watch`.
struct WatchEvent {
  enum Kind: String {
    /// A key that was there when the watch began.
    case present
    /// All of them have been shown.
    case ready
    case put, delete
    /// Changes before it were missed.
    case gap
  }

  let kind: Kind
  /// Nil for `ready` and `gap`.
  let key: Key?
  let type: ValueType?
  let size: UInt64
  let blob: BlobReference?
  /// From which to go on after it.
  let position: ChangePosition
  private let content: () throws(StoreError) -> Value?

  /// An event without a key.
  init(_ kind: Kind, at position: ChangePosition) {
    (self.kind, self.position) = (kind, position)
    (key, type, size, blob, content) = (nil, nil, 0, nil, { () throws(StoreError) in nil })
  }

  /// A key of a listing. After some of the keys one can only begin again.
  init(_ entry: Entry, in snapshot: Snapshot) {
    (kind, position) = (.present, .beginning)
    (key, type, size, blob) = (entry.key, entry.type, entry.size, entry.blob)
    content = { () throws(StoreError) in try snapshot.get(entry.key) }
  }

  init(_ change: Change) {
    (kind, position) = (change.kind == .put ? .put : .delete, change.position)
    (key, type) = (change.key, change.kind == .put ? change.type : nil)
    (size, blob) = (change.size, change.blob)
    content = { () throws(StoreError) in try change.value() }
  }

  /// Whether there is a value to read.
  var hasValue: Bool { type != nil }

  /// The value that was written.
  func value() throws(StoreError) -> Value? { try content() }
}

/// Prints the lines of a watch and runs its command.
struct WatchOutput {
  private let invocation: Invocation
  private let output: Output
  private let stop: StopRequest
  private let command: [UInt8]?
  private let storePath: String
  /// Seconds between the death of a command by a key on the terminal and the same signal to this process.
  private static let signalSeconds = 0.2

  init(_ invocation: Invocation, store: Store, output: Output, stop: StopRequest) {
    (self.invocation, self.output, self.stop) = (invocation, output, stop)
    (command, storePath) = (invocation.value("exec")?.bytes, store.path)
  }

  /// Prints the line of an event and runs the command. False if the command was stopped with the watch.
  func show(_ event: WatchEvent) throws -> Bool {
    let value = try value(of: event)
    try output.write(invocation.wantsJSON ? json(event, value).encoded : line(event))
    try output.write([0x0A])
    try output.flush()
    return try command.map { try run($0, for: event, value) } ?? true
  }

  /// The value, if the line or the command needs it and it can be had.
  private func value(of event: WatchEvent) throws -> Value? {
    guard event.hasValue, let key = event.key, invocation.wantsJSON || command != nil else { return nil }
    guard event.size <= LineReader.lineBytes || !invocation.wantsJSON else { return nil }
    do throws(StoreError) { return try event.value() } catch {
      guard error.concernsOneItem else { throw error }
      Diagnostics.report(Failure(StoreError(error, to: "watch \(Text.printable(key.bytes))")).message)
      return nil
    }
  }

  private func line(_ event: WatchEvent) -> [UInt8] {
    guard let key = event.key else { return Array(event.kind.rawValue.utf8) }
    return Array(event.kind.rawValue.utf8) + [0x09] + output.shown(key: key.bytes)
  }

  private func json(_ event: WatchEvent, _ value: Value?) -> JSON {
    var members = [JSON.Member(name: "event", value: .string(event.kind.rawValue))]
    if let key = event.key { members.append(KeyLine.member(key.bytes)) }
    if let value {
      members += ValueText.members(value.bytes, value.type)
      if let deadline = value.deadline { members.append(.init(name: "expires", value: .integer(deadline))) }
    } else if let type = event.type {
      members += [
        .init(name: "type", value: .string(type.description)),
        .init(name: "size", value: .integer(event.size)),
      ]
      if let blob = event.blob { members.append(.init(name: "blob", value: .string("\(blob.hash)"))) }
    }
    members.append(.init(name: "position", value: .string("\(event.position)")))
    return .object(members)
  }

  // MARK: - The command

  private func run(_ command: [UInt8], for event: WatchEvent, _ value: Value?) throws -> Bool {
    let ending: Subprocess.Ending
    do throws(Failure) {
      let variables = variables(event, isMissing: value == nil)
      let process = try Subprocess(command, variables: variables, feeds: true)
      ending = stop.reacting(process.terminate) { process.finish(feeding: value?.bytes ?? []) }
    } catch {
      Diagnostics.report("watch: \(error.message)")
      return true
    }
    // The signal that ended the command may reach this process a moment later.
    if stop.isMade || ending.isStop && stop.isMade(within: Self.signalSeconds) { return ending == .exited(0) }
    let end =
      switch ending {
      case .exited(0): String?.none
      case .exited(let code): "it ended with \(code)"
      case .signalled(let number): "signal \(number) ended it"
      }
    if let end {
      let what = event.key.map { " of \(Text.printable($0.bytes))" } ?? ""
      let failed = "CMD failed for the \(event.kind.rawValue)\(what)"
      Diagnostics.report("watch: \(failed): \(end): the watch goes on with the next change")
    }
    return true
  }

  private func variables(_ event: WatchEvent, isMissing: Bool) -> [[UInt8]] {
    var variables: [(String, [UInt8])] = [
      ("SYNC_EVENT", Array(event.kind.rawValue.utf8)), ("SYNC_POSITION", Array("\(event.position)".utf8)),
      ("SYNC_TYPE", Array((event.type?.description ?? "").utf8)), ("SYNC_STORE", Array(storePath.utf8)),
      ("SYNC_MISSING", event.hasValue && isMissing ? [UInt8(ascii: "1")] : []),
    ]
    let key = event.key?.bytes ?? []
    let isText = !key.contains(0)
    variables.append(("SYNC_KEY", isText ? key : []))
    variables.append(("SYNC_KEY_BASE64", isText ? [] : Array(Base64.encode(key).utf8)))
    return variables.map { Array($0.0.utf8) + [UInt8(ascii: "=")] + $0.1 }
  }
}

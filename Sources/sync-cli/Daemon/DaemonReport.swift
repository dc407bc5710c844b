import Replication
import SyncStore

/// The daemon's report of its state to other processes, for `status`: a local record of the store, encrypted
/// if the store is.
///
/// It is written on changes, and no more often than `update` is called. Whether the daemon is alive is shown
/// by its lock (`DaemonLock`), not by this.
struct DaemonReport {
  /// The key of the local record; its value is the JSON that `status --json` shows.
  static let key = Array("daemon".utf8)
  private static let mostWaiting = 1000

  private let store: Store
  private let node: Node
  private let log: DaemonLog
  private var last: JSON?
  private var wasAhead = false
  private var waiting = 0

  init(store: Store, node: Node, log: DaemonLog) {
    (self.store, self.node, self.log) = (store, node, log)
  }

  /// Saves changes, and logs when writes stop or resume taking effect.
  mutating func update() {
    do {
      let state = json(node.state)
      if state != last {
        try store.setLocal(Self.key, state.encoded)
        last = state
      }
      try reportClock()
    } catch {
      // Other operations detect whether the store can continue.
      log.write(.debug, "the daemon's state is not written down: \(error)")
    }
  }

  /// Removes the report when the daemon ends.
  func end() { try? store.setLocal(Self.key, nil) }

  private mutating func reportClock() throws(StoreError) {
    let warning = try ClockCommand.warning(store)
    if let warning, !wasAhead { log.write(.warning, warning) }
    if warning == nil, wasAhead {
      log.write(.notice, "the stamps of this copy are no longer ahead of its clock")
    }
    wasAhead = warning != nil
    let writes = try store.parkedWrites(limit: Self.mostWaiting)
    if writes.count > waiting, let last = writes.last {
      log.write(
        .warning,
        "waiting: \(Text.count(writes.count, noun: "write")) of other members, stamped ahead of this clock: the last counts from "
          + "\(Text.date(milliseconds: Store.applicationTime(of: last.stamp))) on: see `sync-cli status`")
    } else if writes.isEmpty, waiting > 0 {
      log.write(.notice, "no write of another member waits for its time any more")
    }
    waiting = writes.count
  }

  private func json(_ state: NodeState) -> JSON {
    let members = Dictionary(
      ((try? Membership(store).members()) ?? []).map { ($0.device, $0.name) },
      uniquingKeysWith: { first, _ in first })
    return [
      "peers": .array(state.peers.map(Self.json)),
      "relays": .array(state.relays.map(Self.json)),
      "connected": .array(state.connected.map { .string(members[$0] ?? "\($0)") }),
      "identity_conflicts": .array(
        state.identityConflicts.sorted { $0.key < $1.key }.map {
          ["device": .string("\($0.key)"), "message": .string($0.value)]
        }),
    ]
  }

  static func json(_ peer: PeerState) -> JSON {
    let phase =
      switch peer.phase {
      case .waiting: "waiting"
      case .connecting: "connecting"
      case .catchingUp: "catching-up"
      case .live: "live"
      }
    let json: JSON = [
      "name": .string(peer.name), "phase": .string(phase), "failures": .integer(peer.failures),
    ]
    return json.with("device", peer.device.map { .string("\($0)") })
      .with("last_success_ms", peer.lastSuccess.map { .integer($0) })
      .with("last_error", peer.lastError.map { .string($0.message) })
      .with("next_try_ms", peer.nextTry.map { .integer($0) })
  }

  /// A relay. Nothing that changes with each look at it: the report would be written as often.
  static func json(_ relay: RelayState) -> JSON {
    let json: JSON = [
      "name": .string(relay.name), "location": .string(relay.location), "failures": .integer(relay.failures),
      "waiting_entries": .integer(relay.waitingEntries), "set_aside": .integer(relay.setAside.count),
    ]
    return json.with("last_error", relay.lastError.map { .string($0.message) })
      .with("last_success_ms", relay.failures > 0 ? relay.lastSuccess.map { .integer($0) } : nil)
      .with("published", relay.published.map { .integer($0) })
  }

  // MARK: - Output of `status`

  /// The report of the daemon that serves the store; nil if there is no daemon.
  static func read(_ store: Store) throws -> JSON? {
    guard let holder = try DaemonLock.holder(of: store) else { return nil }
    var members: [JSON.Member] = []
    if let process = holder.process { members.append(.init(name: "process", value: .integer(process))) }
    if let address = holder.address { members.append(.init(name: "address", value: .string(address))) }
    if let since = holder.since { members.append(.init(name: "since_ms", value: .integer(since))) }
    if let said = try store.local(key), case .object(let more)? = try? JSONParser.parse(said, comments: false)
    {
      members += more
    }
    return .object(members)
  }

  /// The report as text.
  static func lines(_ daemon: JSON?) -> [String] {
    guard let daemon else { return ["daemon     none serves this store"] }
    var words: [String] = []
    if let since = integer(daemon["since_ms"]) { words.append("up since \(Text.date(milliseconds: since))") }
    if let process = integer(daemon["process"]) { words.append("process \(process)") }
    if let address = daemon["address"]?.text { words.append("listens on \(Text.printable(address.utf8))") }
    var lines = ["daemon     " + words.joined(separator: ", ")]
    for peer in list(daemon["peers"]) { lines.append(line(peer)) }
    for relay in list(daemon["relays"]) { lines.append(line(ofRelay: relay)) }
    let connected = list(daemon["connected"]).compactMap(\.text)
    if !connected.isEmpty {
      lines.append("connected  " + connected.map { Text.printable($0.utf8) }.joined(separator: ", "))
    }
    for conflict in list(daemon["identity_conflicts"]) {
      lines.append("identity   \(Text.printable((conflict["message"]?.text ?? "").utf8))")
    }
    return lines
  }

  /// Peers that the daemon fails to reach, and devices with an identity that another one has.
  static func problems(_ daemon: JSON?) -> [StatusCheck.Problem] {
    list(daemon?["peers"]).filter { integer($0["failures"]) ?? 0 > 0 }.map {
      StatusCheck.Problem(name: "peer", text: words(of: $0))
    }
      + list(daemon?["relays"]).filter { isTroubled($0) }.map {
        StatusCheck.Problem(name: "relay", text: words(ofRelay: $0))
      }
      + list(daemon?["identity_conflicts"]).map {
        StatusCheck.Problem(name: "identity", text: Text.printable(($0["message"]?.text ?? "").utf8))
      }
  }

  private static func line(_ peer: JSON) -> String { "peer       \(words(of: peer))" }

  private static func isTroubled(_ relay: JSON) -> Bool {
    ["failures", "waiting_entries", "set_aside"].contains { integer(relay[$0]) ?? 0 > 0 }
  }

  private static func line(ofRelay relay: JSON) -> String { "relay      \(words(ofRelay: relay))" }

  private static func words(ofRelay relay: JSON) -> String {
    var words = [Text.printable((relay["location"]?.text ?? "").utf8)]
    words.append(failure(of: relay) ?? "in step")
    if let time = integer(relay["last_success_ms"]) {
      words.append("last in step \(Text.date(milliseconds: time))")
    }
    if let waiting = integer(relay["waiting_entries"]), waiting > 0 {
      words.append("\(Text.count(waiting, noun: "entry", plural: "entries")) wait for others to come")
    }
    if let objects = integer(relay["set_aside"]), objects > 0 {
      words.append("\(Text.count(objects, noun: "object")) set aside")
    }
    return "\(Text.printable((relay["name"]?.text ?? "").utf8)): " + words.joined(separator: "; ")
  }

  private static func words(of peer: JSON) -> String {
    var words = [peer["phase"]?.text ?? "unknown"]
    if let time = integer(peer["last_success_ms"]) {
      words.append("last in step \(Text.date(milliseconds: time))")
    } else {
      words.append("not reached since the daemon began")
    }
    if let failure = failure(of: peer) { words.append(failure) }
    if let time = integer(peer["next_try_ms"]) { words.append("next try \(Text.date(milliseconds: time))") }
    return "\(Text.printable((peer["name"]?.text ?? "").utf8)): " + words.joined(separator: "; ")
  }

  /// The number of failed attempts to use a peer or a relay, and the last error; nil without one.
  private static func failure(of json: JSON) -> String? {
    guard let error = json["last_error"]?.text else { return nil }
    let failures = Text.count(integer(json["failures"]) ?? 0, noun: "failed attempt")
    return "\(failures), the last: \(Text.printable(error.utf8))"
  }

  private static func integer(_ json: JSON?) -> UInt64? {
    guard case .number(let text)? = json else { return nil }
    return UInt64(text)
  }

  private static func list(_ json: JSON?) -> [JSON] {
    guard case .array(let items)? = json else { return [] }
    return items
  }
}

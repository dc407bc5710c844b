/// States as text; `schemas/model-histories.md` and `schemas/relay-histories.md` describe the layout.
extension Model.World {
  func text(_ copy: Int) -> String {
    let live = copies[copy].live
    let held = live.held.sorted { $0.key < $1.key }
    let parked = live.parked.sorted { $0.key < $1.key }.flatMap(\.records)
    let losers = live.losers.sorted {
      ($0.key, $0.actor, $0.sequence, $0.value) < ($1.key, $1.actor, $1.sequence, $1.value)
    }
    let cursors = live.cursors.pairs.sorted { $0.actor < $1.actor }.map { actor, cursor in
      "\(actor.name):\(cursor.position):\(cursor.mark):\(cursor.isClosed ? 1 : 0)"
    }
    let flags =
      (copies[copy].isAlive ? "" : "L") + (live.isMending ? "m" : "")
      + (live.relay.hasAlarm ? "a" : "")
    let parts = [
      "\(live.actor.name)", "\(live.sequence)", "\(live.clock)", "\(live.position)",
      flags.isEmpty ? "-" : flags,
      "v" + list(live.vector), "f" + list(live.floor), "\(live.horizon)", "h" + list(held),
      "p" + list(parked),
      "l" + list(losers), "s" + list(live.suspects.map { "\($0.actor.name):\($0.above)" }),
      "c" + list(cursors),
      "d" + list(digest(copy, at: wall(copy)).map { "\($0.key)=\($0.value)" }),
    ]
    return (parts + (relay.use == .none ? [] : relayParts(live.relay))).joined(separator: " ")
  }

  /// All copies, and the relay if there is one.
  var texts: [String] { copies.indices.map { text($0) } + (relay.use == .none ? [] : [relayText]) }

  private func relayParts(_ state: Model.RelayState) -> [String] {
    let own = state.stream.map { "\($0):\(state.number):\(state.mark):\(state.position)" } ?? "-"
    return [
      "r" + own + (state.pending.map { ":\($0)" } ?? ""), "k" + list(state.closing),
      "n" + list(state.seen.map { "\($0.id.stream):\($0.id.number):\($0.id.mark)" }),
      "u" + list(state.covered),
      "o" + list(state.owed.map { "\($0.id.stream):\($0.id.number)" }.sorted()),
    ]
  }

  /// The relay: of each stream its entries, then the checkpoints.
  private var relayText: String {
    let streams = relay.streams.enumerated().map { index, stream in
      let entries = zip(stream.marks, stream.entries).map { mark, entry in
        entry.map { "\(mark):\($0.records.count)" } ?? "\(mark)"
      }
      return "\(index + 1)=" + list(entries)
    }
    let checkpoints = relay.checkpoints.map { "\($0.id.mark):\($0.records.count)" }
    return (["R"] + streams + ["c" + list(checkpoints)]).joined(separator: " ")
  }

  private func list(_ parts: [String]) -> String { parts.isEmpty ? "-" : parts.joined(separator: ",") }

  private func list(_ vector: Model.Vector) -> String {
    list(vector.pairs.sorted { $0.actor < $1.actor }.map { "\($0.actor.name):\($0.sequence)" })
  }

  private func list(_ records: [Model.Record]) -> String {
    list(records.map { "\($0.key)/\($0.actor.name):\($0.sequence)\($0.isDead ? "!" : "")" })
  }
}

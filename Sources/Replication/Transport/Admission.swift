internal import SyncStore

/// Which of the connections that have not yet proven who they are may try (F88, F89). A value without a clock.
///
/// A place is taken from the first byte to the proof. Silent connections never take one: they wait, at the cost of a
/// descriptor, until they speak or are dropped. Who speaks and finds no place waits, and the one that came last is served
/// first: in a flood a member's is served as soon as a place is free, and places become free because one that is held for
/// longer than the grace is given up when another waits for it.
///
/// A network (`SocketAddress.network`) that holds no place goes before those that hold some. It takes one over after `newcomerGrace`, from
/// a network that holds several after the shorter `fairGrace`: a flood keeps it waiting for less than a second, unless more than `total`
/// networks without a place come after it in that time. A connection that was
/// refused, and only lingers for its last words, gives its place up at once.
struct Admission {
  /// What to do with a connection.
  enum Action: Equatable {
    /// It may prove itself.
    case start(UInt64)
    /// It must go.
    case drop(UInt64)
  }

  private struct Place {
    var address: String
    var since: UInt64
    var isFinishing = false
  }

  private let total: Int
  private let perAddress: Int
  private let waitingLimit: Int
  private let grace: UInt64
  private let newcomerGrace: UInt64
  private let fairGrace: UInt64
  private var places: [UInt64: Place] = [:]
  private var held: StringDictionary<Int> = [:]
  // In order of arrival.
  private var waiting: [Visitor] = []

  private struct Visitor {
    var number: UInt64
    var address: String
    var since: UInt64
    var hasSpoken = false
  }

  /// Nobody is here. The bounds are those of `Limits` but in tests.
  init(
    total: Int = Limits.unauthenticatedConnections,
    perAddress: Int = Limits.unauthenticatedConnectionsPerAddress,
    waiting: Int = TransportLimits.waitingConnections, grace: UInt64 = TransportLimits.graceMilliseconds,
    newcomerGrace: UInt64 = TransportLimits.newcomerGraceMilliseconds,
    fairGrace: UInt64 = TransportLimits.fairGraceMilliseconds
  ) {
    (self.total, self.perAddress, waitingLimit, self.grace) = (total, perAddress, waiting, grace)
    (self.newcomerGrace, self.fairGrace) = (newcomerGrace, fairGrace)
  }

  /// Connections that are proving themselves.
  var placesTaken: Int { places.count }
  /// Connections that wait for a place.
  var waitingCount: Int { waiting.count }

  /// A connection came from a network; `number` is a name for it that was never used before.
  mutating func arrived(_ number: UInt64, from address: String, at now: UInt64) -> [Action] {
    waiting.append(Visitor(number: number, address: address, since: now))
    return bound(spoken: false)
  }

  /// The connection has sent its first byte.
  mutating func spoke(_ number: UInt64, at now: UInt64) -> [Action] {
    guard let index = waiting.firstIndex(where: { $0.number == number }) else { return [] }
    waiting[index].hasSpoken = true
    return fill(at: now) + bound(spoken: true)
  }

  /// Drops the oldest of those that have spoken, or of the silent ones, if they are too many.
  private mutating func bound(spoken: Bool) -> [Action] {
    guard waiting.count(where: { $0.hasSpoken == spoken }) > waitingLimit,
      let oldest = waiting.firstIndex(where: { $0.hasSpoken == spoken })
    else { return [] }
    return [.drop(waiting.remove(at: oldest).number)]
  }

  /// The connection has proven itself, or is gone.
  mutating func left(_ number: UInt64, at now: UInt64) -> [Action] {
    if let place = places.removeValue(forKey: number) {
      free(place.address)
    } else {
      waiting.removeAll { $0.number == number }
    }
    return fill(at: now)
  }

  /// The connection was refused, and stays only until the peer has read why.
  mutating func finishes(_ number: UInt64, at now: UInt64) -> [Action] {
    guard places[number] != nil else { return [] }
    places[number]?.isFinishing = true
    return fill(at: now)
  }

  /// Time has passed: gives up what was held or waited for too long. To be called now and then while anybody waits.
  mutating func tick(at now: UInt64, deadline: UInt64 = UInt64(Limits.handshakeSeconds) * 1000) -> [Action] {
    var actions: [Action] = []
    while let first = waiting.first, first.since + deadline <= now {
      actions.append(.drop(waiting.removeFirst().number))
    }
    return actions + fill(at: now)
  }

  private mutating func fill(at now: UInt64) -> [Action] {
    fill(at: now) { $0 == 0 } + fill(at: now) { $0 > 0 }
  }

  /// Gives places to those who wait and whose network holds a number of places that `isTheirTurn`.
  private mutating func fill(at now: UInt64, _ isTheirTurn: (Int) -> Bool) -> [Action] {
    var actions: [Action] = []
    // In a flood many wait that come from few networks: none gets a place where another one of its network got none.
    var blocked: StringSet = []
    var index = waiting.count - 1
    while index >= 0 {
      let next = waiting[index]
      guard next.hasSpoken, !blocked.contains(next.address), isTheirTurn(held[next.address, default: 0])
      else {
        index -= 1
        continue
      }
      if let victim = blocker(of: next.address, at: now) {
        guard let victim = victim.expired else {
          blocked.insert(next.address)
          index -= 1
          continue
        }
        if let place = places.removeValue(forKey: victim) { free(place.address) }
        actions.append(.drop(victim))
      }
      waiting.remove(at: index)
      places[next.number] = Place(address: next.address, since: now)
      held[next.address, default: 0] += 1
      actions.append(.start(next.number))
      blocked = []
      index -= 1
    }
    return actions
  }

  /// Nil if there is a place for `address`; else the holder that must give its own up, if it must.
  private func blocker(of address: String, at now: UInt64) -> (expired: UInt64?, Void)? {
    let own = held[address, default: 0]
    let isAddressFull = own >= perAddress
    guard isAddressFull || places.count >= total else { return nil }
    let candidates = places.filter {
      (!isAddressFull || $0.value.address == address)
        && ($0.value.isFinishing || $0.value.since + grace(for: $0.value, before: own) <= now)
    }
    let victim = candidates.min {
      ($0.value.isFinishing ? 0 : 1, $0.value.since, $0.key) < (
        $1.value.isFinishing ? 0 : 1, $1.value.since, $1.key
      )
    }
    return (victim?.key, ())
  }

  private func grace(for place: Place, before own: Int) -> UInt64 {
    if held[place.address, default: 0] > own + 1 { return min(grace, fairGrace) }
    return own == 0 ? min(grace, newcomerGrace) : grace
  }

  private mutating func free(_ address: String) {
    let count = held[address, default: 0] - 1
    held[address] = count > 0 ? count : nil
  }
}

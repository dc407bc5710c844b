internal import SyncStore

/// Decides which unauthenticated connections may run their handshake (F88, F89). A value without a clock.
///
/// A place is held from the first byte to the proof of identity. Silent connections never hold one: they
/// wait, at the cost of a descriptor, until they send or are dropped. Connections that have sent and find no
/// place wait and are served last in, first out. In a flood a member is thus served as soon as a place is
/// free, and places become free because one held for longer than the grace is given up when another
/// connection waits for it.
///
/// A network (`SocketAddress.network`) without a place goes before those with some. It takes one over after
/// `newcomerGrace`, or after the shorter `fairGrace` from a network that holds several: a flood delays it by
/// less than a second, unless more than `total` networks without a place arrive after it in that time. A
/// refused connection that only lingers until the peer has read the reason gives its place up at once.
struct Admission {
  /// An action on a connection.
  enum Action: Equatable {
    /// Start its handshake.
    case start(UInt64)
    /// Close it.
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

  /// Creates an empty state. The bounds are those of `Limits`, except in tests.
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

  /// Connections in their handshake.
  var placesTaken: Int { places.count }
  /// Connections that wait for a place.
  var waitingCount: Int { waiting.count }

  /// A connection arrived from a network; `number` must never have been used before.
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

  /// Drops the oldest of the connections that have sent, or of the silent ones, if they are too many.
  private mutating func bound(spoken: Bool) -> [Action] {
    guard waiting.count(where: { $0.hasSpoken == spoken }) > waitingLimit,
      let oldest = waiting.firstIndex(where: { $0.hasSpoken == spoken })
    else { return [] }
    return [.drop(waiting.remove(at: oldest).number)]
  }

  /// The connection has proven its identity, or is closed.
  mutating func left(_ number: UInt64, at now: UInt64) -> [Action] {
    if let place = places.removeValue(forKey: number) {
      free(place.address)
    } else {
      waiting.removeAll { $0.number == number }
    }
    return fill(at: now)
  }

  /// The connection was refused, and lingers only until the peer has read the reason.
  mutating func finishes(_ number: UInt64, at now: UInt64) -> [Action] {
    guard places[number] != nil else { return [] }
    places[number]?.isFinishing = true
    return fill(at: now)
  }

  /// Drops connections that held a place or waited for too long. Call it periodically while any connection
  /// waits.
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

  /// Assigns places to waiting connections whose network's number of places satisfies `isTheirTurn`.
  private mutating func fill(at now: UInt64, _ isTheirTurn: (Int) -> Bool) -> [Action] {
    var actions: [Action] = []
    // In a flood many connections come from few networks: once one of a network gets no place, skip the
    // others.
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

  /// Nil if there is a place for `address`; otherwise the holder that must give up its place, if there is
  /// one.
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

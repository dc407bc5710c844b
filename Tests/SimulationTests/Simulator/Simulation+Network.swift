import Replication
import SyncStore
import SyncTestSupport

/// Connections: bytes arrive late and in pieces, work takes time, links are cut with or without notice.
extension Simulation {
  /// A connection between two machines, as each of them knows it.
  final class Link {
    let client: Int
    let server: Int
    /// Nil once that side has ended.
    var clientSide: SessionSide?
    var serverSide: SessionSide?
    /// Latency in milliseconds.
    let latency: Int
    /// Whether frames may be lost, duplicated and reordered.
    let letsThrough: Bool
    /// Nothing arrives any more; a side that is not notified has a half-open connection.
    var isCut = false
    var delivers = [false, false]
    var works: [[Bool]] = [[false, false], [false, false]]
    var settings: [[SessionTimer: Int]] = [[:], [:]]

    init(_ client: Int, _ server: Int, latency: Int, letsThrough: Bool) {
      (self.client, self.server, self.latency, self.letsThrough) = (client, server, latency, letsThrough)
    }

    func side(_ isClient: Bool) -> SessionSide? { isClient ? clientSide : serverSide }
    func machine(_ isClient: Bool) -> Int { isClient ? client : server }
    func drop(_ isClient: Bool) {
      if isClient { clientSide = nil } else { serverSide = nil }
    }
  }

  /// Whether these two are partitioned.
  func areParted(_ one: Int, _ other: Int) -> Bool {
    guard let partitioned, partitioned.until > now else { return false }
    return partitioned.group.contains(one) != partitioned.group.contains(other)
  }

  func dial(_ machine: Machine) throws {
    guard let other = machine.neighbours.randomElement(using: &random),
      [machine, machines[other]].allSatisfy({ $0.awayUntil <= now && $0.revokedUntil <= now }),
      !areParted(machine.number, other)
    else { return }
    // One connection per pair at a time (F62, F70).
    for (number, link) in links.sorted(by: { $0.key < $1.key })
    where Set([link.client, link.server]) == [machine.number, other] {
      if link.clientSide?.outcome == nil && link.clientSide != nil, !link.isCut { return }
      // The dialler knows that the old one is dead; the other side replaces it with the new one.
      for isClient in [true, false] { disconnected(number, isClient) }
    }
    wake(machine)
    wake(machines[other])
    if machine.isOld || machines[other].isOld { try shareKeys([machine, machines[other]]) }
    counts.sessions += 1
    let link = Link(
      machine.number, other, latency: 1 + random.below(random.chance(10) ? 5000 : 100),
      letsThrough: wire.letsThrough())
    nextLink += 1
    links[nextLink] = link
    let drawn = random.chance(80) ? SessionDirection.sync : random.pick([.push, .pull])
    let direction = direction(of: machine, to: machines[other], drawn)
    let mode = random.chance(30) ? SessionMode.live : .once
    link.clientSide = SessionSide(
      .client(direction), machine.store, peerName: machines[other].name, peerRight: right(machines[other]),
      mode: mode, capabilities: .chunks, isOld: machine.isOld, pingSeconds: options.pingSeconds)
    link.serverSide = SessionSide(
      .server, machines[other].store, peerName: machine.name, peerRight: right(machine),
      mode: mode, capabilities: .chunks, isOld: machines[other].isOld, pingSeconds: options.pingSeconds)
    if machine.isOld || machines[other].isOld { counts.old += 1 }
    if mode == .live { queue.schedule(.cut(link: nextLink), at: now + below(1_200_000)) }
    // Faults mostly strike in the middle of a session.
    if random.chance(15) { queue.schedule(.cut(link: nextLink), at: now + below(20 * link.latency + 200)) }
    if random.chance(8) {
      queue.schedule(.crash(random.pick([machine.number, other])), at: now + below(20 * link.latency + 200))
    }
    pump(nextLink)
  }

  /// The journal of a machine has grown: notifies its live sessions.
  func grow(_ machine: Machine) {
    for number in links.keys.sorted() {
      guard let link = links[number], link.client == machine.number || link.server == machine.number else {
        continue
      }
      guard let side = link.side(link.client == machine.number), side.grow() else { continue }
      counts.live += 1
      pump(number)
    }
  }

  /// Schedules the next events of a link.
  private func pump(_ number: Int) {
    guard let link = links[number] else { return }
    for isClient in [true, false] {
      let index = isClient ? 0 : 1
      guard let side = link.side(isClient) else { continue }
      for lane in SessionSide.Lane.allCases where side.hasWork(lane) && !link.works[index][lane.rawValue] {
        link.works[index][lane.rawValue] = true
        queue.schedule(.work(link: number, isClient: isClient, lane), at: now + 1 + below(30))
      }
      for (timer, set) in side.timers.sorted(by: { $0.value.setting < $1.value.setting })
      where link.settings[index][timer] != set.setting {
        link.settings[index][timer] = set.setting
        queue.schedule(
          .timer(link: number, isClient: isClient, timer, setting: set.setting),
          at: now + UInt64(set.seconds) * 1000)
      }
      let other = link.side(!isClient)
      if !side.outgoing.isEmpty, !link.delivers[index], !link.isCut, let other, !other.isPaused {
        link.delivers[index] = true
        queue.schedule(
          .deliver(link: number, fromClient: isClient), at: now + UInt64(link.latency) + wire.delay(&counts))
      }
      if side.outcome != nil, side.outgoing.isEmpty || link.isCut || other == nil, !side.hasWork(.receiving) {
        count(side, machines[link.machine(isClient)])
        ended.insert(link.machine(isClient))
        link.drop(isClient)
        if other != nil, !link.isCut {
          queue.schedule(.disconnected(link: number, isClient: !isClient), at: now + UInt64(link.latency))
        }
      }
    }
    if link.clientSide == nil, link.serverSide == nil { links[number] = nil }
  }

  /// Adds the figures of an ended session.
  func count(_ side: SessionSide, _ machine: Machine) {
    counts.records += side.figures.receivedRecords
    counts.blobs += side.figures.receivedBlobs
    counts.fullStates += side.fullStates
    counts.returns += side.returns
    if machine.wasRevoked { counts.revokedReturns += side.returns }
    if side.outcome == .done, right(machine) == .readOnly { counts.restricted += 1 }
    switch side.outcome {
    case .done: counts.finished += 1
    case .reconnect: counts.rebirths += 1
    default: counts.refused += 1
    }
  }

  func work(_ number: Int, _ isClient: Bool, _ lane: SessionSide.Lane) throws {
    guard let link = links[number] else { return }
    link.works[isClient ? 0 : 1][lane.rawValue] = false
    guard let side = link.side(isClient) else { return }
    let machine = machines[link.machine(isClient)]
    wake(machine)
    try side.doWork(lane)
    if let failure = side.takeFailure() { try endure(failure, machine) }
    // The machine may have been restarted.
    if links[number] != nil, link.side(isClient) != nil, lane == .receiving {
      try look(machine)
      // After the end the copy is checked in any case.
      if random.chance(side.outcome != nil ? 30 : 2), side.outcome == nil { try check(machine) }
      if side.outcome == .done, random.chance(30) { try acknowledge(machine) }
      grow(machine)
    }
    pump(number)
  }

  func deliver(_ number: Int, _ fromClient: Bool) throws {
    guard let link = links[number] else { return }
    link.delivers[fromClient ? 0 : 1] = false
    guard !link.isCut, let from = link.side(fromClient), let to = link.side(!fromClient) else {
      return pump(number)
    }
    if to.isPaused { return pump(number) }
    if link.letsThrough {
      let bytes = try wire.pass(from.take(.max), &counts)
      if !bytes.isEmpty { to.handle(.received(bytes)) }
    } else {
      let most = random.chance(70) ? from.outgoing.count : 1 + random.below(max(from.outgoing.count, 1))
      to.handle(.received(from.take(most)))
    }
    pump(number)
  }

  func timerFired(_ number: Int, _ isClient: Bool, _ timer: SessionTimer, _ setting: Int) {
    guard let link = links[number], let side = link.side(isClient), side.timers[timer]?.setting == setting
    else {
      return
    }
    side.handle(.timer(timer))
    if link.isCut, side.outcome != nil { _ = side.take(.max) }
    pump(number)
  }

  func disconnected(_ number: Int, _ isClient: Bool) {
    guard let link = links[number], let side = link.side(isClient) else { return }
    side.handle(.disconnected)
    _ = side.take(.max)
    link.isCut = true
    pump(number)
  }

  /// Cuts a link. Each side learns of it now, or only from its timers.
  func cut(_ number: Int) {
    guard let link = links[number] else { return }
    counts.cuts += 1
    link.isCut = true
    for isClient in [true, false] where random.chance(60) { disconnected(number, isClient) }
  }

  /// A machine's process is gone: its sides vanish, the others may be notified.
  func dropLinks(of machine: Machine) {
    for number in links.keys.sorted() {
      guard let link = links[number], link.client == machine.number || link.server == machine.number else {
        continue
      }
      let isClient = link.client == machine.number
      link.drop(isClient)
      link.isCut = true
      if random.chance(60) { disconnected(number, !isClient) }
      if link.clientSide == nil, link.serverSide == nil { links[number] = nil }
    }
  }
}

/// Operations on a relay, its garbage (L11), and what must hold.
extension Model.World {
  /// Does one operation on the relay.
  mutating func step(_ operation: Model.RelayOperation) throws(Violation) {
    if let copy = operation.copy { touched.insert(copy) }
    switch operation {
    case .publish(let copy, let loss): try publish(copy, loss)
    case .checkpoint(let copy): try publish(copy, withCheckpoint: true)
    case .fetch(let copy, let stream, let count):
      let streams = relay.streams.count
      if streams > 0 { try fetch(copy, 1 + stream % streams, count) }
    case .poll(let copy): try poll(copy)
    case .read(let copy, let which): try read(copy, checkpoint: which)
    case .collect(let which): collect(which)
    case .loss(let stream, let count):
      let streams = relay.streams.count
      guard streams > 0 else { return }
      relay.lose(1 + stream % streams, count)
      self.count(.relayLoss)
    case .newcomer(let isScoped):
      guard copies.count < Model.mostCopies else { return }
      addCopy(scope: isScoped ? Array(stride(from: 0, to: keys, by: 2)) : nil)
      touched.insert(copies.count - 1)
      count(.newcomer)
    }
  }

  private mutating func poll(_ copy: Int) throws(Violation) {
    var hasRead = true
    while hasRead {
      hasRead = false
      for stream in relay.streams.indices {
        while try fetch(copy, stream + 1) { hasRead = true }
      }
    }
    mergeOwed(copy)
  }

  // MARK: Garbage

  /// L11: entries that a standing checkpoint covers go, except the last one of each stream, whose mark tells
  /// a publisher that lost power after creating it that it is its own. Checkpoints that it covers go, too.
  private mutating func collect(_ which: Int) {
    guard let checkpoint = checkpoint(which), stands(checkpoint) else { return }
    for dep in checkpoint.deps {
      let length = relay.length(dep.stream) - (rules.relay.keepsLast ? 1 : 0)
      relay.collect(dep.stream, upTo: min(dep.number, length))
    }
    relay.checkpoints = relay.checkpoints.filter {
      $0.id == checkpoint.id || !isReplaced($0, by: checkpoint)
    }
    relay.isUnread = true
    count(.collected)
  }

  /// Whether one checkpoint covers what another covers, or the other stands for entries that never came.
  private func isReplaced(_ old: Entry, by checkpoint: Entry) -> Bool {
    guard stands(old) else {
      return old.deps.contains { isLost($0) && relay.length($0.stream) >= $0.number }
    }
    return old.deps.allSatisfy { checkpoint.dep(on: $0.stream) >= $0.number }
  }

  // MARK: Invariants

  /// RI: a newcomer reads everything in the relay without help from another member (L5). After losses, or
  /// where one dot has two contents, this is not promised.
  mutating func checkRelay() throws(Violation) {
    guard relay.isUnread, !relay.hasLostEntries, !forks else { return }
    relay.isUnread = false
    var world = self
    world.addCopy()
    let newcomer = world.copies.count - 1
    for index in relay.checkpoints.indices {
      try world.read(newcomer, checkpoint: -1 - index)
      try world.poll(newcomer)
    }
    try world.poll(newcomer)
    for index in relay.streams.indices {
      let progress = world.copies[newcomer].live.relay.progress(index + 1)
      guard progress < relay.length(index + 1) else { continue }
      throw Violation(name: "RI", text: "a newcomer cannot read entry \(progress + 1) of stream \(index + 1)")
    }
  }

  // MARK: Healing

  /// As `heal`, but no two copies meet.
  mutating func healThroughRelay() throws(Violation) {
    try endFaults()
    let alive = copies.indices.filter { copies[$0].isAlive }
    let before = shown
    try exchange(alive, 6)
    let unsettled = alive.filter { copies[$0].live.isMending || !copies[$0].live.suspects.isEmpty }
    for copy in unsettled where alive.contains(where: { recovers(copy, from: $0) }) {
      throw Violation(name: "I1", text: "copy \(copy) stays in doubt, though another one could recover it")
    }
    if !unsettled.isEmpty { return count(.unmendable) }
    try checkHealed()
    if forks { try checkSilentLoss(of: before) }
    now += retirement + 5
    for _ in 0..<3 {
      try each(alive.map { .acknowledge($0) })
      try exchange(alive, 3)
      try each(alive.map { .purge($0) })
      now += 1
    }
    try exchange(alive, 3)
    try checkHealed()
    try checkPurged()
    try checkRelay()
  }

  /// All publish and read. Where one cannot read everything, a copy that can writes a checkpoint; if there is
  /// none, each writes one of what it has.
  private mutating func exchange(_ alive: [Int], _ times: Int) throws(Violation) {
    for _ in 0..<times {
      for copy in alive { try each([.relay(.poll(copy)), .relay(.publish(copy, .never))]) }
      try each(alive.map { .relay(.poll($0)) })
      guard alive.contains(where: isStuck) else { continue }
      if let writer = alive.first(where: {
        !isStuck($0) && copies[$0].live.isSound && copies[$0].scope == nil
      }) {
        try each([.relay(.checkpoint(writer))])
      } else {
        for copy in alive where copies[copy].live.isSound { try each([.relay(.checkpoint(copy))]) }
      }
      for copy in alive where isStuck(copy) {
        try each(relay.checkpoints.indices.map { .relay(.read(copy, checkpoint: -1 - $0)) })
      }
    }
  }

  /// Whether a checkpoint of another copy recovers a copy in doubt.
  private func recovers(_ copy: Int, from other: Int) -> Bool {
    let writer = copies[other].live
    return copies[other].scope == nil && writer.isSound && writer.vector.covers(copies[copy].live.floor)
  }

  /// Whether a copy needs a checkpoint.
  private func isStuck(_ copy: Int) -> Bool {
    let live = copies[copy].live
    if !live.suspects.isEmpty || live.isMending || live.relay.hasAlarm { return true }
    return relay.streams.indices.contains { index in
      index + 1 != live.relay.stream && live.relay.progress(index + 1) < relay.length(index + 1)
    }
  }
}

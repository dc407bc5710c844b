internal import SyncStore

/// Large values from several members at once.
extension BlobFetchCoordinator {
  /// Values that come so: each may have `BlobSwarm.aheadBytes` waiting in memory, and is asked of every session.
  private static let mostSwarms = WireLimits.partedBlobs
  /// Milliseconds in which members are connected to for a large value, before it is looked how many there are.
  private static let gatherMilliseconds = 1_000

  /// A value that is large comes from several members at once, if there are, in its turn. Members that take long to connect to come
  /// in later.
  func prepareSwarm(_ blob: BlobReference) {
    let hash = blob.hash
    requests[hash]?.hasSwarmed = true
    requests[hash]?.isResolving = true
    // What is decided for an earlier request, which has its value already, is decided for this one.
    guard !activeSwarms.contains(hash) else { return }
    guard activeSwarms.count < Self.mostSwarms else {
      requests[hash]?.isQueued = true
      return swarmQueue.append(hash)
    }
    activeSwarms.insert(hash)
    var isDecided = false
    let decide: (Bool) -> Void = { [weak self] isComplete in
      guard let self, !isDecided, isComplete || !fetching().isEmpty else { return }
      isDecided = true
      startSwarm(blob)
    }
    if fetching().count > 1 {
      decide(false)
    } else {
      _ = loop.schedule(after: Self.gatherMilliseconds) { decide(false) }
    }
    connectAllMembers { [weak self] in
      decide(true)
      self?.releaseSessions()
    }
  }

  private func startSwarm(_ blob: BlobReference) {
    requests[blob.hash]?.isResolving = false
    guard requests[blob.hash] != nil, fetching().count > 1 else {
      advance(blob.hash)
      return releaseSwarmSlot(of: blob.hash)
    }
    let swarm = BlobSwarm(blob: blob, context: context, loop: loop)
    swarm.onProgress = { [weak self] held in
      for progress in self?.requests[blob.hash]?.progress ?? [] { progress(held, blob.size) }
    }
    swarm.onEnd = { [weak self] isHere in
      guard let self else { return }
      swarms[blob.hash] = nil
      if isHere { arrived(blob.hash, from: nil) } else { advance(blob.hash) }
      releaseSwarmSlot(of: blob.hash)
    }
    swarms[blob.hash] = swarm
    joinSwarms()
    swarm.start()
  }

  /// The next value has its turn.
  private func releaseSwarmSlot(of hash: BlobHash) {
    activeSwarms.remove(hash)
    while activeSwarms.count < Self.mostSwarms, !swarmQueue.isEmpty {
      let next = swarmQueue.removeFirst()
      requests[next]?.isQueued = false
      if let blob = requests[next]?.blob { prepareSwarm(blob) }
    }
  }

  /// Members that can be asked now are.
  func joinSwarms() {
    for swarm in Array(swarms.values) {
      for (device, driver) in fetching() { swarm.join(device, driver: driver) }
    }
  }
}

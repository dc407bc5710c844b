internal import SyncStore

/// Fetching large values from several members at once.
extension BlobFetchCoordinator {
  /// Upper bound on concurrent swarms: each may keep `BlobSwarm.outOfOrderBytes` in memory and asks every
  /// session.
  private static let mostSwarms = WireLimits.blobsInParts
  /// Milliseconds to connect to more members before counting the sources of a large value.
  private static let gatherMilliseconds = 1_000

  /// Fetches a large value from several members at once, if there are several, in its turn. Members that
  /// connect late join while the swarm runs.
  func prepareSwarm(_ blob: BlobReference) {
    let hash = blob.hash
    requests[hash]?.hasSwarmed = true
    requests[hash]?.isResolving = true
    // An earlier request, whose value has arrived already, is still deciding: its decision holds for this one
    // too.
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

  /// Frees the value's swarm slot and starts the next queued value.
  private func releaseSwarmSlot(of hash: BlobHash) {
    activeSwarms.remove(hash)
    while activeSwarms.count < Self.mostSwarms, !swarmQueue.isEmpty {
      let next = swarmQueue.removeFirst()
      requests[next]?.isQueued = false
      if let blob = requests[next]?.blob { prepareSwarm(blob) }
    }
  }

  /// Adds the members that can be asked now to all swarms.
  func joinSwarms() {
    for swarm in Array(swarms.values) {
      for (device, driver) in fetching() { swarm.join(device, driver: driver) }
    }
  }
}

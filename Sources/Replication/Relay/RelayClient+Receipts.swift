internal import SyncStore

/// Statements of the own head that need no entry: what was read, and what this copy asks for.
extension RelayClient {
  /// The own head as it is, or a first one, with what this copy has seen and asks for.
  func head(
    of stream: StreamID, in view: RelayView, after progress: RelayProgress, by copy: ReplicaSummary
  ) -> RelayHead {
    let now = store.environment.now()
    var head =
      view.streams[stream]?.head
      ?? RelayHead(
        stream: stream, publicKey: identity.publicKey, wrappingKey: wrappingKey, actor: copy.actor, time: now)
    (head.publicKey, head.wrappingKey) = (identity.publicKey, wrappingKey)
    (head.actor, head.time) = (copy.actor, now)
    head.seen = progress.seen
    memory.withLock { memory in
      head.wanted = memory.wanted
      head.needsFullState = memory.needsFullState
    }
    let known = view.namedCheckpoints.prefix(RelayLimits.tried).map(\.reference.fingerprint)
    head.tried = head.needsFullState ? known : []
    return head
  }

  /// States in the own head what this copy has read and asks for, unless it says so already. Rings the bell
  /// only if it asks for something: of the rest no member has to hear at once.
  func acknowledge(_ format: RelayFormat) async throws(ReplicationError) {
    let relay = format.relay
    let copy = try await storeWork { store throws(StoreError) in try store.relayReplica() }
    var progress = try await storeWork { store throws(StoreError) in try store.relayProgress(relay) }
    let view = memory.withLock { $0.view }
    if progress.stream == nil {
      let asks = memory.withLock { $0.asks }
      guard asks || !progress.seen.isEmpty else { return }
      let stream = newStream(of: copy.actor)
      // Durable first: an unknown stream of this copy's actor would mean that it was cloned.
      progress = try await storeWork { store throws(StoreError) in
        try store.updateRelay(relay, as: copy.actor, isDurable: true) { progress in
          progress.stream = stream
          progress.ownStreams.insert(stream)
        }
      }
    }
    guard let stream = progress.stream else { return }
    let new = head(of: stream, in: view, after: progress, by: copy)
    let old = view.streams[stream]?.head
    let isStated = old?.states(sameAs: new) ?? false
    // An earlier process may have died, or its request failed, before it rang.
    let mustRing = memory.withLock { $0.asks && (!$0.hasAsked || new.asksMore(than: old)) }
    // If another process has replaced the head concurrently, it has stated the same.
    if !isStated, try await !write(new, keys(format)) { return }
    guard mustRing else { return }
    try await ringBell()
    memory.withLock { $0.hasAsked = true }
  }
}

extension RelayHead {
  /// Whether it asks for something that another one of the stream does not ask for.
  fileprivate func asksMore(than old: RelayHead?) -> Bool {
    (needsFullState && (old?.needsFullState != true || old?.tried != tried))
      || !Set(wanted).isSubset(of: old?.wanted ?? [])
  }

  /// Whether another head states the same about what was seen and is asked for.
  fileprivate func states(sameAs other: RelayHead) -> Bool {
    seen == other.seen && wanted == other.wanted && needsFullState == other.needsFullState
      && (!needsFullState || tried == other.tried)
  }
}

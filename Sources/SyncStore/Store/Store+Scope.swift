/// Selective copies: which keys a copy holds, and how it expands. docs/replication.md, Selective copies.
extension Store {
  /// The keys that this copy holds; nil for all.
  ///
  /// - Throws: `.closed`, `.forked`.
  public var scope: KeyScope? {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.scope } }
  }

  /// Whether a scope expansion is under way: the copy wants more keys than it has received.
  ///
  /// - Throws: `.closed`, `.forked`.
  public var isWidening: Bool {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.scopeExpansion != nil } }
  }

  /// Restricts a new copy, which has received and written nothing yet, to some of the keys. Durable on
  /// return.
  ///
  /// - Throws: `.outOfBounds` if it holds something already: to hold less, a copy joins anew.
  package func narrow(to scope: KeyScope) throws(StoreError) {
    let (_, tail) = try writes.append { builder throws(StoreError) in
      guard builder.state.vector.isEmpty, builder.state.sequence == 0, builder.state.cursors.isEmpty else {
        throw StoreError(
          .outOfBounds, "a copy that holds something already cannot hold less: join anew", path: path)
      }
      try builder.setLocal(StateKey.scope, scope.bytes)
    }
    try sync(upTo: tail)
  }

  /// Expands this copy's scope, to all keys if nil, once their records have been received. Durable on return.
  ///
  /// Keys that it holds already are not sent again. False if the copy has that scope already and no expansion
  /// is left.
  @discardableResult
  package func widen(to wanted: KeyScope?) throws(StoreError) -> Bool {
    let before = try reading { engine throws(StoreError) in engine.state.scopeExpansion }
    if let before, before.scope != wanted { try applier.discardPartialExpansion() }
    let (isWider, tail) = try writes.append { builder throws(StoreError) in
      let state = builder.state
      guard wanted.covers(state.scope) else {
        throw StoreError(
          .outOfBounds, "a copy cannot give up keys that it holds: it is to hold all that it has, and more",
          path: path)
      }
      let isWider = wanted != state.scope
      if isWider, state.scopeExpansion?.scope != wanted || state.scopeExpansion == nil {
        try builder.setLocal(StateKey.scopeExpansion, ScopeExpansion(to: wanted).bytes)
      } else if !isWider, state.scopeExpansion != nil {
        try builder.setLocal(StateKey.scopeExpansion, nil)
      }
      return isWider
    }
    try sync(upTo: tail)
    return isWider
  }

  /// Claims the scope expansion for a session. Throws `.busy` if another live session of this process has it:
  /// two at once would keep discarding what the other has brought.
  package func claimScopeExpansion(for session: any AnyObject & Sendable) throws(StoreError) {
    try applier.claimScopeExpansion(for: session)
  }

  /// Releases the claim.
  package func endScopeExpansion() { applier.endScopeExpansion() }
}

extension KeyScope {
  var bytes: [UInt8] {
    var writer = ByteWriter()
    write(to: &writer)
    return writer.bytes
  }
}

extension Store {
  /// Health of this copy: whether its vector may be trusted, and whether it has unconfirmed writes.
  package var health: ReplicaHealth {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.health } }
  }

  /// Sets local keys durably in one append; nil removes a key.
  package func setLocals(_ changes: [(key: [UInt8], value: [UInt8]?)]) throws(StoreError) {
    let (_, tail) = try append { builder throws(StoreError) in
      for change in changes {
        precondition(!StateKey.isInternal(change.key), "the store keeps these keys itself")
        try builder.setLocal(change.key, change.value)
      }
    }
    try sync(upTo: tail)
  }
}

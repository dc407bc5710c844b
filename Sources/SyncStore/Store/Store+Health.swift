extension Store {
  /// What the copy thinks of its own state: whether it can be believed what it covers, and whether writes of its own are in doubt.
  package var health: ReplicaHealth {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.health } }
  }

  /// Sets local keys in one append, durably; nil ends a key.
  package func setLocals(_ changes: [(key: [UInt8], value: [UInt8]?)]) throws(StoreError) {
    let (_, tail) = try append { composer throws(StoreError) in
      for change in changes {
        precondition(!StateKey.isInternal(change.key), "the store keeps these keys itself")
        try composer.setLocal(change.key, change.value)
      }
    }
    try sync(upTo: tail)
  }
}

extension Store {
  /// Health of this copy: whether its vector may be trusted, and whether it has unconfirmed writes.
  package var health: ReplicaHealth {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.health } }
  }

}

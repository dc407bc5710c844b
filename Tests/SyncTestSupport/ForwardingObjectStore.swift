package import Replication

/// Hands each call on to another object store; a test implements the calls that it changes.
package protocol ForwardingObjectStore: ObjectStore {
  associatedtype Objects: ObjectStore
  /// The store that has the objects.
  var objects: Objects { get }
}

extension ForwardingObjectStore {
  package var location: String { objects.location }
  package var figures: ObjectStoreFigures { objects.figures }
  package var clock: UInt64? { objects.clock }

  package func get(
    _ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int
  ) async throws(ObjectStoreError) -> ObjectReading {
    try await objects.get(name, range: range, unless: known, limit: limit)
  }

  package func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome { try await objects.put(name, bytes, if: condition) }

  package func list(_ prefix: String) async throws(ObjectStoreError) -> [ObjectEntry] {
    try await objects.list(prefix)
  }

  package func delete(_ names: [String]) async throws(ObjectStoreError) { try await objects.delete(names) }
}

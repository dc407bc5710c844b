internal import SyncStore

/// Reads and writes objects of a relay, and throws the errors of replication.
protocol RelayUser: Sendable {
  var objects: any ObjectStore { get }
  /// What messages call the relay.
  var name: String { get }
}

extension RelayUser {
  func get(
    _ object: String, unless known: ObjectVersion? = nil, limit: Int
  ) async throws(ReplicationError) -> ObjectReading {
    do throws(ObjectStoreError) {
      return try await objects.get(object, range: nil, unless: known, limit: limit)
    } catch { throw ReplicationError(error, at: name) }
  }

  func exists(_ object: String) async throws(ReplicationError) -> Bool {
    do throws(ObjectStoreError) {
      return try await objects.get(object, range: 0..<1, unless: nil, limit: 1) != .absent
    } catch { throw ReplicationError(error, at: name) }
  }

  func put(
    _ object: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ReplicationError) -> PutOutcome {
    do throws(ObjectStoreError) { return try await objects.put(object, bytes, if: condition) } catch {
      throw ReplicationError(error, at: name)
    }
  }

  func list(_ prefix: String) async throws(ReplicationError) -> [ObjectEntry] {
    do throws(ObjectStoreError) { return try await objects.list(prefix) } catch {
      throw ReplicationError(error, at: name)
    }
  }

  func delete(_ names: StringSet) async throws(ReplicationError) {
    guard !names.isEmpty else { return }
    do throws(ObjectStoreError) { try await objects.delete(names.sorted()) } catch {
      throw ReplicationError(error, at: name)
    }
  }
}

extension ReplicationError {
  fileprivate init(_ error: ObjectStoreError, at relay: String) {
    let code: ReplicationError.Code =
      switch error.code {
      case .unreachable, .throttled, .failed, .missing: .network
      case .credentials, .denied: .notAllowed
      case .full, .cancelled: .unavailable
      case .tooLarge, .invalid: .protocolViolation
      }
    self.init(code, "\(relay): \(error.message)")
  }
}

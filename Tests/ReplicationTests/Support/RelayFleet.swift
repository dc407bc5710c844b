import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Two members in step that never meet again, and a directory for their relay.
struct RelayFleet {
  let place = TemporaryDirectory()
  let first: TestCopy
  let second: TestCopy

  init() async throws {
    let (server, client, _) = try await pair()
    (first, second) = (server, client)
    await first.node.stop()
    await second.node.stop()
  }

  func client(_ copy: TestCopy) throws -> RelayClient {
    try RelayClient(store: copy.store, objects: DirectoryStore(at: place.path), name: "stick")
  }

  /// Publishes at one and reads at the other.
  func carry(_ from: TestCopy, _ to: TestCopy) async throws -> RelayReport {
    _ = try await client(from).push()
    return try await client(to).pull()
  }

  /// The relay's objects of a kind.
  func objects(_ prefix: String) async throws -> [String] {
    try await DirectoryStore(at: place.path).list(prefix).map(\.name)
  }

  /// Makes an object with these bytes missing, cut, changed or swapped with `format`.
  func damage(_ name: String, _ bytes: [UInt8], by fault: String) async throws {
    let objects = try DirectoryStore(at: place.path)
    switch fault {
    case "missing": try await objects.delete([name])
    case "cut": _ = try await objects.put(name, bytes.dropLast(), if: .always)
    case "changed":
      var changed = bytes
      changed[bytes.count / 2] ^= 1
      _ = try await objects.put(name, changed, if: .always)
    default:
      guard case .found(let format) = try await objects.get("format") else { return }
      _ = try await objects.put(name, format.bytes, if: .always)
    }
  }
}

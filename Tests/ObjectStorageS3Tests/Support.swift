import Replication
import SyncStore
import Testing

@testable import ObjectStorageS3

/// A machine whose waits end at once, and are counted.
final class TestMachine: Sendable {
  private let waited = Locked<[UInt64]>([])

  /// The waits so far, in milliseconds.
  var waits: [UInt64] { waited.withLock { $0 } }

  /// `clockOffset` is added to the wall clock.
  func machine(clockOffset: Int64 = 0) -> S3Machine {
    var machine = S3Machine()
    machine.now = { UInt64(Int64(SystemCall.wallMilliseconds()) + clockOffset) }
    machine.sleep = { [waited] time in waited.withLock { $0.append(time) } }
    return machine
  }
}

extension S3Options {
  /// A bucket of a server on loopback, with credentials that the servers of the tests accept.
  static func test(_ endpoint: String, bucket: String = "bucket", prefix: String = "") -> S3Options {
    var options = S3Options(bucket: bucket, prefix: prefix)
    options.endpoint = endpoint
    options.credentials = .fixed(S3Credentials(accessKeyID: "test-key", secretAccessKey: "test-secret"))
    options.timeoutSeconds = 20
    return options
  }
}

extension S3Store {
  /// A store whose server follows a script, and that never waits.
  static func scripted(
    _ server: ScriptedServer, machine: TestMachine = TestMachine(), clockOffset: Int64 = 0
  ) throws -> S3Store {
    try S3Store(.test(server.address), machine: machine.machine(clockOffset: clockOffset))
  }
}

/// The error that a call throws; nil if it throws none.
func failure<Value>(of call: () async throws -> Value) async -> ObjectStoreError? {
  do {
    _ = try await call()
    return nil
  } catch {
    if let error = error as? ObjectStoreError { return error }
    Issue.record(error)
    return nil
  }
}

/// The bytes of an object; nil if it is absent.
func bytes(_ reading: ObjectReading) -> [UInt8]? {
  guard case .found(let content) = reading else { return nil }
  return content.bytes
}

/// Whether both are equal. A failed expectation does not print them.
func same(_ first: [UInt8]?, _ second: [UInt8]) -> Bool { first == second }

/// Bytes that differ from place to place, and whose period is no multiple of any block.
func pattern(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
  var state = seed
  let block = (0..<min(count, 65_537)).map { _ in
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return UInt8(truncatingIfNeeded: state >> 56)
  }
  var bytes: [UInt8] = []
  bytes.reserveCapacity(count)
  while bytes.count < count { bytes += block.prefix(count - bytes.count) }
  return bytes
}

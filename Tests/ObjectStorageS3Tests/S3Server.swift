import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import ObjectStorageS3

/// An S3 server of another project in its own process, on a free port of loopback.
final class S3Server: Sendable {
  /// The servers that `scripts/s3-servers.sh` installs.
  enum Kind: String, Sendable, CaseIterable, CustomTestStringConvertible {
    /// Honours conditions, and does not check signatures.
    case moto
    /// Checks signatures strictly, and ignores conditions.
    case rclone

    var testDescription: String { rawValue }
  }

  private static let programs = Checkout.top + "/.build/s3-servers/bin/"

  /// Whether both are there.
  static let areInstalled = FileManager.default.fileExists(
    atPath: Checkout.top + "/.build/s3-servers/installed")

  let kind: Kind
  let endpoint: String
  private let directory: TemporaryDirectory
  private let process: ChildProcess

  /// Starts a server with an empty bucket `bucket`. `arguments` are further ones for it.
  init(_ kind: Kind, _ arguments: [String] = []) async throws {
    let directory = TemporaryDirectory()
    try FileManager.default.createDirectory(
      atPath: directory.path + "/served/bucket", withIntermediateDirectories: true)
    let log = directory.path + "/log"
    try Data().write(to: URL(filePath: log))
    let said = try FileHandle(forWritingTo: URL(filePath: log))
    let command =
      switch kind {
      case .moto: ["moto_server", "-H", "127.0.0.1", "-p", "0"]
      case .rclone:
        [
          "rclone", "serve", "s3", directory.path + "/served", "--auth-key", "test-key,test-secret",
          "--config",
          directory.path + "/no-configuration",
        ] + (arguments.contains("--addr") ? [] : ["--addr", "127.0.0.1:0"])
      }
    process = try ChildProcess(
      [Self.programs + command[0]] + command.dropFirst() + arguments,
      environment: ["PATH": "/usr/bin:/bin", "HOME": directory.path], output: said, error: said)
    (self.kind, self.directory) = (kind, directory)
    endpoint = try await Self.address(in: log, process)
    guard kind == .moto else { return }
    let client = S3Client(try S3Address(.test(endpoint)), .test(endpoint), machine: S3Machine())
    let answer = try await client.send(S3Request(operation: .put, method: "PUT", name: nil))
    #expect(answer.failure == nil)
  }

  /// The address that a server writes when it is ready.
  private static func address(in log: String, _ process: ChildProcess) async throws -> String {
    let end = ContinuousClock.now + .seconds(60 * Patience.minutes(1))
    while ContinuousClock.now < end, process.isRunning {
      let text = try String(contentsOfFile: log, encoding: .utf8)
      if let found = text.firstMatch(of: #/https?://127\.0\.0\.1:[0-9]+/#) { return String(found.0) }
      try await Task.sleep(for: .milliseconds(50))
    }
    throw NotReady(text: try String(contentsOfFile: log, encoding: .utf8))
  }

  struct NotReady: Error { let text: String }

  /// The options of a store in its bucket.
  func options(prefix: String = "") -> S3Options { .test(endpoint, prefix: prefix) }
}

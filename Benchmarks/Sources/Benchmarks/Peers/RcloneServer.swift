import Foundation
import ObjectStorageS3

/// `rclone serve s3` on loopback, with an empty bucket `bucket`, and `rclone copy` into it and out of it.
final class RcloneServer {
  static let title = "rclone"
  private static let program = ".build/s3-servers/bin/rclone"
  private static let key = (name: "bench-key", secret: "bench-secret")

  private let process = Process()
  private let endpoint: String

  /// Nil if `make s3-servers` has not installed it.
  init?(in folder: String) throws {
    guard FileManager.default.isExecutableFile(atPath: Self.program) else { return nil }
    try FileManager.default.createDirectory(
      atPath: folder + "/served/bucket", withIntermediateDirectories: true)
    let log = folder + "/log"
    guard FileManager.default.createFile(atPath: log, contents: nil) else {
      throw BenchmarkError("cannot make \(log)")
    }
    process.executableURL = URL(fileURLWithPath: Self.program)
    process.arguments = [
      "serve", "s3", folder + "/served", "--auth-key", "\(Self.key.name),\(Self.key.secret)", "--config",
      folder + "/no-configuration", "--addr", "127.0.0.1:0",
    ]
    let said = try FileHandle(forWritingTo: URL(fileURLWithPath: log))
    (process.standardOutput, process.standardError) = (said, said)
    try process.run()
    endpoint = try Self.address(in: log)
  }

  /// The address that it writes when it is ready.
  private static func address(in log: String) throws -> String {
    for _ in 0..<500 {
      let text = try String(contentsOfFile: log, encoding: .utf8)
      if let found = text.firstMatch(of: #/https?://127\.0\.0\.1:[0-9]+/#) { return String(found.0) }
      usleep(20_000)
    }
    throw BenchmarkError("rclone does not serve: see \(log)")
  }

  /// The store in its bucket, below `relay/`.
  var options: S3Options {
    var options = S3Options(bucket: "bucket", prefix: "relay")
    options.endpoint = endpoint
    options.credentials = .fixed(
      S3Credentials(accessKeyID: Self.key.name, secretAccessKey: Self.key.secret))
    return options
  }

  /// Milliseconds of `rclone copy` of a directory into the bucket, and of the same files from there.
  func copy(_ directory: String, in folder: String) throws -> (put: Double, get: Double) {
    let bucket = "bench:bucket/plain"
    try Machine.settle(touching: RedisReplica.memory, in: folder)
    let put = try time(["copy", directory, bucket])
    try Machine.settle(touching: RedisReplica.memory, in: folder)
    return (put, try time(["copy", bucket, folder + "/plain"]))
  }

  private func time(_ words: [String]) throws -> Double {
    let client = Process()
    client.executableURL = URL(fileURLWithPath: Self.program)
    client.arguments = words + ["--config", "/dev/null"]
    client.environment = [
      "PATH": "/usr/bin:/bin", "RCLONE_CONFIG_BENCH_TYPE": "s3", "RCLONE_CONFIG_BENCH_PROVIDER": "Rclone",
      "RCLONE_CONFIG_BENCH_ENDPOINT": endpoint, "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": Self.key.name,
      "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": Self.key.secret,
    ]
    client.standardOutput = FileHandle.nullDevice
    client.standardError = FileHandle.nullDevice
    let begin = Machine.now()
    try client.run()
    client.waitUntilExit()
    guard client.terminationStatus == 0 else { throw BenchmarkError("rclone could not copy \(words)") }
    return Double(Machine.now() - begin) / 1e6
  }

  func end() {
    process.terminate()
    process.waitUntilExit()
  }
}

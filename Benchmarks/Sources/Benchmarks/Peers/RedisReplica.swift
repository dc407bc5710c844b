import Foundation

/// Redis as packaged by Debian: a primary with records of the same size, and a replica that copies it over
/// TLS, diskless. Nothing is durable on arrival.
struct RedisReplica {
  static let title = "redis"
  /// Bytes of memory available when a copy starts, for either side: more than it needs.
  static let memory = 1 << 30
  private static let ports = (primary: 17_461, replica: 17_462)

  let folder: String
  let keys: Int
  /// Size of each value.
  let bytes: Int

  init(folder: String, keys: Int, bytes: Int = 100) {
    // Redis changes its directory before it opens its files.
    (self.folder, self.keys, self.bytes) = (URL(fileURLWithPath: folder).path, keys, bytes)
  }

  /// Milliseconds from the replication command until the link is up and the replica has loaded everything;
  /// nil if Redis is not installed, or was built without TLS.
  func fullSynchronization() throws -> Double? {
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/redis-server") else { return nil }
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try Self.makeCertificate(in: folder)
    let primary = try start(Self.ports.primary, "primary", [])
    defer { end(primary) }
    _ = try Self.cli(folder, Self.ports.primary, ["debug", "populate", "\(keys)", "k", "\(bytes)"])
    let replica = try start(Self.ports.replica, "replica", [])
    defer { end(replica) }
    try Machine.settle(touching: Self.memory, in: folder)
    let begin = Machine.now()
    _ = try Self.cli(folder, Self.ports.replica, ["replicaof", "127.0.0.1", "\(Self.ports.primary)"])
    while true {
      let information = try Self.cli(folder, Self.ports.replica, ["info", "replication"])
      if information.contains("master_link_status:up") { break }
      guard Machine.now() - begin < 120_000_000_000 else {
        throw BenchmarkError("Redis did not finish its copy in two minutes")
      }
      usleep(5_000)
    }
    return Double(Machine.now() - begin) / 1e6
  }

  private func start(_ port: Int, _ name: String, _ more: [String]) throws -> Process {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/redis-server")
    try? FileManager.default.createDirectory(atPath: "\(folder)/\(name)", withIntermediateDirectories: true)
    process.arguments =
      [
        "--port", "0", "--tls-port", "\(port)", "--bind", "127.0.0.1", "--tls-cert-file",
        "\(folder)/cert.pem",
        "--tls-key-file", "\(folder)/key.pem", "--tls-ca-cert-file", "\(folder)/cert.pem",
        "--tls-replication", "yes", "--tls-auth-clients", "no", "--save", "", "--appendonly", "no",
        "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb",
        "--rdbcompression", "no", "--enable-debug-command", "yes", "--dir", "\(folder)/\(name)", "--loglevel",
        "warning",
      ] + more
    process.standardOutput = FileHandle.nullDevice
    try process.run()
    for _ in 0..<500 {
      if (try? Self.cli(folder, port, ["ping"]))?.contains("PONG") == true { return process }
      usleep(10_000)
    }
    process.terminate()
    throw BenchmarkError("redis-server does not answer: was it built with TLS?")
  }

  private func end(_ process: Process) {
    process.terminate()
    process.waitUntilExit()
  }

  /// `key.pem` and `cert.pem`.
  static func makeCertificate(in folder: String) throws {
    _ = try output(
      "openssl",
      [
        "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout",
        "\(folder)/key.pem", "-out", "\(folder)/cert.pem",
      ])
  }

  private static func cli(_ folder: String, _ port: Int, _ words: [String]) throws -> String {
    try output(
      "redis-cli", ["-p", "\(port)", "--tls", "--cacert", "\(folder)/cert.pem", "--insecure"] + words)
  }

  private static func output(_ program: String, _ words: [String]) throws -> String {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/\(program)")
    process.arguments = words
    let pipe = Pipe()
    process.standardOutput = pipe
    process.standardError = FileHandle.nullDevice
    try process.run()
    let data = try pipe.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    return String(decoding: data, as: UTF8.self)
  }
}

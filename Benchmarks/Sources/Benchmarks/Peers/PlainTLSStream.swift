import Foundation

/// A file over TLS between two OpenSSL processes and nothing else: not stored, not verified.
enum PlainTLSStream {
  static let title = "tls"
  private static let port = 17_463

  /// Milliseconds for a file of that many bytes; nil if `openssl` is not installed.
  static func transfer(_ bytes: Int, in folder: String) throws -> Double? {
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/openssl") else { return nil }
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try RedisReplica.makeCertificate(in: folder)
    try Data().write(to: URL(fileURLWithPath: "\(folder)/file"))
    let file = try FileHandle(forWritingTo: URL(fileURLWithPath: "\(folder)/file"))
    for start in stride(from: 0, to: bytes, by: 8 << 20) {
      try file.write(contentsOf: Data(SyncServer.noise(min(8 << 20, bytes - start), seed: UInt64(start + 1))))
    }
    try file.close()
    let server = process(
      folder, "s_server",
      ["-quiet", "-HTTP", "-accept", "127.0.0.1:\(port)", "-cert", "cert.pem", "-key", "key.pem"])
    server.standardInput = FileHandle.nullDevice
    try server.run()
    defer {
      server.terminate()
      server.waitUntilExit()
    }
    try awaitServer(folder)
    let begin = Machine.now()
    _ = try get("file", folder)
    return Double(Machine.now() - begin) / 1e6
  }

  /// Retries until a connection succeeds.
  private static func awaitServer(_ folder: String) throws {
    for _ in 0..<500 {
      if try get("cert.pem", folder) { return }
      usleep(10_000)
    }
    throw BenchmarkError("openssl s_server does not answer at port \(port): is it taken?")
  }

  /// Reads a file from the server, which closes the connection at its end. Returns false if there was none.
  private static func get(_ name: String, _ folder: String) throws -> Bool {
    let client = process(folder, "s_client", ["-quiet", "-connect", "127.0.0.1:\(port)"])
    let input = Pipe()
    client.standardInput = input
    try client.run()
    input.fileHandleForWriting.write(Data("GET /\(name) HTTP/1.0\r\n\r\n".utf8))
    client.waitUntilExit()
    try input.fileHandleForWriting.close()
    return client.terminationStatus == 0
  }

  private static func process(_ folder: String, _ command: String, _ words: [String]) -> Process {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
    process.currentDirectoryURL = URL(fileURLWithPath: folder)
    process.arguments = [command] + words
    process.standardOutput = FileHandle.nullDevice
    process.standardError = FileHandle.nullDevice
    return process
  }
}

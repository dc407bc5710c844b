import Foundation

/// rsync as packaged by Debian, between two folders of this machine: its two processes communicate through a
/// pipe, without TLS, and nothing is durable when it ends.
enum Rsync {
  static let title = "rsync"

  /// Updates a file from the first form of a large value to its edited form. Returns milliseconds, and the
  /// bytes exchanged between the two processes; nil if rsync is not installed.
  static func update(_ size: Int, in folder: String) throws -> (milliseconds: Double, bytes: Int)? {
    let program = "/usr/bin/rsync"
    guard FileManager.default.isExecutableFile(atPath: program) else { return nil }
    let (from, to) = ("\(folder)/from/large", "\(folder)/to/large")
    for (path, isEdited) in [(from, true), (to, false)] {
      let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      guard FileManager.default.createFile(atPath: path, contents: nil) else {
        throw BenchmarkError("cannot make \(path)")
      }
      let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
      try SyncServer.pieces(ofLarge: size, isEdited: isEdited) { try file.write(contentsOf: $0) }
      try file.close()
    }
    try Machine.settle(touching: 2 << 30, in: folder)
    let process = Process()
    process.executableURL = URL(fileURLWithPath: program)
    // By default it copies whole files when both are on one machine.
    process.arguments = ["--no-whole-file", "--ignore-times", "--stats", from, to]
    let pipe = Pipe()
    process.standardOutput = pipe
    let begin = Machine.now()
    try process.run()
    let said = String(decoding: try pipe.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    let milliseconds = Double(Machine.now() - begin) / 1e6
    guard process.terminationStatus == 0,
      FileManager.default.contentsEqual(atPath: from, andPath: to)
    else { throw BenchmarkError("rsync did not make the two files equal") }
    return (milliseconds, figure("Total bytes sent", in: said) + figure("Total bytes received", in: said))
  }

  private static func figure(_ name: String, in text: String) -> Int {
    let line = text.split(separator: "\n").first { $0.hasPrefix(name + ":") } ?? ""
    return Int(line.filter(\.isNumber)) ?? 0
  }
}

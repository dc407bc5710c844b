import Foundation

/// `sync-cli` as a process: arguments, input, exit.
final class Command: @unchecked Sendable {
  struct Result {
    /// Exit code; 128 plus the signal number if it was killed.
    var code: Int32
    var out: [UInt8]
    var err: String
    var text: String { String(decoding: out, as: UTF8.self).trimmingCharacters(in: .newlines) }
  }

  let process: pid_t
  private let folder: String
  // Set once, by the thread that waited for the exit.
  private var result: Result?

  /// Starts it. `folder` is created, holds input and output, and is removed with the command.
  init(_ program: String, _ words: [String], input: [UInt8] = [], in folder: String) throws {
    self.folder = folder
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try Data(input).write(to: URL(fileURLWithPath: folder + "/in"))
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, folder + "/in", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, folder + "/out", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_addopen(&actions, 2, folder + "/err", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    var arguments = Self.pointers([program] + words)
    var variables = Self.pointers(["PATH=/usr/bin:/bin", "SWIFT_BACKTRACE=enable=no"])
    defer { for text in arguments + variables { free(text) } }
    var process: pid_t = 0
    let code = posix_spawn(&process, program, &actions, nil, &arguments, &variables)
    guard code == 0 else { throw Failure("\(program) does not start: \(String(cString: strerror(code)))") }
    self.process = process
  }

  private static func pointers(_ texts: [String]) -> [UnsafeMutablePointer<CChar>?] {
    var pointers: [UnsafeMutablePointer<CChar>?] = []
    for text in texts { pointers.append(strdup(text)) }
    return pointers + [nil]
  }

  deinit {
    if result == nil {
      kill(process, SIGKILL)
      _ = end(within: 10)
    }
    try? FileManager.default.removeItem(atPath: folder)
  }

  func signal(_ number: Int32) { kill(process, number) }

  /// Its output so far.
  func output(_ name: String = "out") -> [UInt8] {
    FileManager.default.contents(atPath: folder + "/" + name).map { [UInt8]($0) } ?? []
  }

  /// Waits for its exit; nil after that many seconds.
  func end(within seconds: Double) -> Result? {
    if let result { return result }
    let limit = Date().addingTimeInterval(seconds)
    var pause: UInt32 = 500
    while true {
      var status: Int32 = 0
      if waitpid(process, &status, WNOHANG) == process {
        let signal = status & 0x7f
        let code = signal == 0 ? (status >> 8) & 0xff : 128 + signal
        result = Result(code: code, out: output(), err: String(decoding: output("err"), as: UTF8.self))
        return result
      }
      if Date() > limit { return nil }
      usleep(pause)
      pause = min(pause * 2, 20_000)
    }
  }
}

/// A broken promise.
struct Failure: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

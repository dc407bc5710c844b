import Foundation

/// A copy of the store in a directory, used by short-lived processes of `sync-cli`.
final class Machine: @unchecked Sendable {
  let name: String
  let path: String
  let program: String
  private let folder: String
  private var commands = 0
  private var daemon: Command?

  init(_ name: String, _ program: String, below folder: String) {
    (self.name, self.program, self.folder) = (name, program, folder)
    path = folder + "/" + name
  }

  /// Starts a command.
  func start(_ words: [String], input: [UInt8] = []) throws -> Command {
    commands += 1
    return try Command(
      program, ["--store", path] + words, input: input, in: folder + "/run-\(name)-\(commands)")
  }

  /// Runs a command, which must terminate.
  func run(_ words: [String], input: [UInt8] = [], within seconds: Double = 120) throws -> Command.Result {
    guard let result = try start(words, input: input).end(within: seconds) else {
      throw Failure("\(name): `\(words.joined(separator: " "))` does not end within \(Int(seconds)) s")
    }
    return result
  }

  /// Runs a command that must succeed.
  @discardableResult
  func succeed(_ words: [String], input: [UInt8] = []) throws -> Command.Result {
    let result = try run(words, input: input)
    guard result.code == 0 else {
      throw Failure("\(name): `\(words.joined(separator: " "))` ended with \(result.code): \(result.err)")
    }
    return result
  }

  // MARK: Daemon

  var isServing: Bool { daemon != nil }

  /// Starts the daemon; returns its address.
  @discardableResult
  func serve(port: UInt16 = 0) throws -> UInt16 {
    let command = try start(["serve", "--listen", "127.0.0.1:\(port)"])
    for _ in 0..<600 {
      let line = String(decoding: command.output(), as: UTF8.self)
      if line.hasSuffix("\n"), let port = line.split(separator: ":").last.flatMap({ UInt16($0.dropLast()) }) {
        daemon = command
        return port
      }
      if let ended = command.end(within: 0.05) {
        throw Failure("\(name): the daemon did not start: it ended with \(ended.code): \(ended.err)")
      }
    }
    throw Failure("\(name): the daemon does not listen within 30 s")
  }

  /// Ends the daemon by a signal; `SIGTERM` must lead to a clean exit.
  func end(by signal: Int32) throws {
    guard let command = daemon else { return }
    daemon = nil
    command.signal(signal)
    command.signal(SIGCONT)
    guard let result = command.end(within: 30) else {
      throw Failure("\(name): the daemon does not end within 30 s of signal \(signal)")
    }
    guard signal == SIGKILL || result.code == 0 else {
      throw Failure("\(name): the daemon ended with \(result.code): \(result.err.suffix(500))")
    }
  }

  func pause(_ isPaused: Bool) { daemon?.signal(isPaused ? SIGSTOP : SIGCONT) }

  /// A daemon that has exited by itself is a failure.
  func checkDaemon() throws {
    guard let command = daemon, let result = command.end(within: 0) else { return }
    daemon = nil
    throw Failure("\(name): the daemon ended by itself with \(result.code): \(result.err.suffix(500))")
  }
}

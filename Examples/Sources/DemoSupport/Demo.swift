import Foundation

/// What a demonstration expected and did not find.
public struct DemoFailure: Error, CustomStringConvertible {
  /// What was expected.
  public let description: String

  /// Says so.
  public init(_ description: String) { self.description = description }
}

/// Fails unless it is so, and says that it is.
public func check(_ isSo: Bool, _ what: String) throws {
  guard isSo else { throw DemoFailure("it is not so that \(what)") }
  say("  ok: \(what)")
}

/// Does the work of a program: an error is told on standard error and ends it with 1.
public func reportingErrors(_ work: () async throws -> Void) async {
  do {
    try await work()
  } catch {
    FileHandle.standardError.write(Data("\(error)\n".utf8))
    exit(1)
  }
}

/// One line on standard output, at once.
public func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// The moment, in milliseconds since 1970, as deadlines of a store are.
public func milliseconds() -> UInt64 { UInt64(Date().timeIntervalSince1970 * 1000) }

/// Gives `body` a directory that is removed afterwards.
public func withScratch(_ body: (String) async throws -> Void) async throws {
  let path = NSTemporaryDirectory() + "sync-store-example-" + UUID().uuidString
  try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(atPath: path) }
  try await body(path)
}

/// This very program, run with other words in a process of its own. Killed with its last reference.
public final class Program {
  private let process = Process()
  private let output: String

  /// Begins it; what it prints goes to a file in `scratch`.
  public init(in scratch: String, _ words: String...) throws {
    output = scratch + "/output-" + UUID().uuidString
    try Data().write(to: URL(fileURLWithPath: output))
    process.executableURL = URL(
      fileURLWithPath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
    process.arguments = words
    process.standardOutput = try FileHandle(forWritingTo: URL(fileURLWithPath: output))
    try process.run()
  }

  deinit { if process.isRunning { kill() } }

  /// The whole lines that it has printed so far.
  public var lines: [String] {
    let text = (try? String(contentsOfFile: output, encoding: .utf8)) ?? ""
    return text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init)
  }

  /// Waits, for half a minute at most, until it has printed a line that begins so, and gives the rest of it.
  public func line(_ beginning: String) async throws -> String {
    for _ in 0..<3000 {
      if let line = lines.last(where: { $0.hasPrefix(beginning) }) {
        return String(line.dropFirst(beginning.count))
      }
      try await Task.sleep(for: .milliseconds(10))
    }
    throw DemoFailure("no line \"\(beginning)…\" came; there is: \(lines.suffix(3))")
  }

  /// Ends it as `kill -9` does, at whatever it is. When this returns it has let go of all that it held.
  public func kill() {
    let directory = "/proc/\(process.processIdentifier)"
    _ = Foundation.kill(process.processIdentifier, SIGKILL)
    // It has files open as long as one of its threads is in a call that nothing interrupts, a sync.
    while let text = try? String(contentsOfFile: directory + "/stat", encoding: .utf8),
      let threads = try? FileManager.default.contentsOfDirectory(atPath: directory + "/task"),
      threads.count > 1 || !text.contains(") Z ")
    {
      Thread.sleep(forTimeInterval: 0.002)
    }
  }

  /// Waits for its end, for a minute at most, which must be a good one.
  public func finish() async throws {
    for _ in 0..<6000 where process.isRunning { try await Task.sleep(for: .milliseconds(10)) }
    guard !process.isRunning, process.terminationStatus == 0 else {
      throw DemoFailure("\(process.arguments ?? []) did not end well")
    }
  }
}

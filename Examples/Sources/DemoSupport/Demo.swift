import Foundation

/// A failed expectation of a demonstration.
public struct DemoFailure: Error, CustomStringConvertible {
  /// The expectation.
  public let description: String

  /// Creates the error.
  public init(_ description: String) { self.description = description }
}

/// Checks an expectation, and prints it if it holds.
public func check(_ isSo: Bool, _ what: String) throws {
  guard isSo else { throw DemoFailure("it is not so that \(what)") }
  say("  ok: \(what)")
}

/// Runs a program's work: an error is printed on standard error, and the exit code is 1.
public func reportingErrors(_ work: () async throws -> Void) async {
  do {
    try await work()
  } catch {
    FileHandle.standardError.write(Data("\(error)\n".utf8))
    exit(1)
  }
}

/// Prints a line on standard output and flushes it.
public func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// Current time in milliseconds since 1970, as used in a store's deadlines.
public func milliseconds() -> UInt64 { UInt64(Date().timeIntervalSince1970 * 1000) }

/// Calls `body` with a temporary directory.
public func withScratch(_ body: (String) async throws -> Void) async throws {
  let path = NSTemporaryDirectory() + "sync-store-example-" + UUID().uuidString
  try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(atPath: path) }
  try await body(path)
}

/// This program, run with other arguments in a separate process. Killed with its last reference.
public final class Program {
  private let process = Process()
  private let output: String

  /// Starts it; its output goes to a file in `scratch`.
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

  /// Its complete lines of output so far.
  public var lines: [String] {
    let text = (try? String(contentsOfFile: output, encoding: .utf8)) ?? ""
    return text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init)
  }

  /// Waits up to half a minute for a line with this prefix, and returns the rest of that line.
  public func line(_ beginning: String) async throws -> String {
    for _ in 0..<3000 {
      if let line = lines.last(where: { $0.hasPrefix(beginning) }) {
        return String(line.dropFirst(beginning.count))
      }
      try await Task.sleep(for: .milliseconds(10))
    }
    throw DemoFailure("no line \"\(beginning)…\" came; there is: \(lines.suffix(3))")
  }

  /// Kills it like `kill -9`, whatever it is doing. When this returns all its resources are released.
  public func kill() {
    let directory = "/proc/\(process.processIdentifier)"
    _ = Foundation.kill(process.processIdentifier, SIGKILL)
    // It has files open while one of its threads is in an uninterruptible call, a sync.
    while let text = try? String(contentsOfFile: directory + "/stat", encoding: .utf8),
      let threads = try? FileManager.default.contentsOfDirectory(atPath: directory + "/task"),
      threads.count > 1 || !text.contains(") Z ")
    {
      Thread.sleep(forTimeInterval: 0.002)
    }
  }

  /// Waits up to a minute for its exit, which must be successful.
  public func finish() async throws {
    for _ in 0..<6000 where process.isRunning { try await Task.sleep(for: .milliseconds(10)) }
    guard !process.isRunning, process.terminationStatus == 0 else {
      throw DemoFailure("\(process.arguments ?? []) did not end well")
    }
  }
}

import Foundation
import SyncStore
import SyncTestSupport
import Testing

/// The built program, run as a process like from a script.
struct Tool: Sendable {
  struct Result: Sendable {
    let code: Int32
    let out: [UInt8]
    let err: String
    var text: String { String(decoding: out, as: UTF8.self) }
    /// The lines of standard output.
    var lines: [String] { text.split(separator: "\n").map(String.init) }
  }

  /// The program's path: next to the test bundle.
  static let path: String = {
    let own = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
    return (own as NSString).deletingLastPathComponent + "/sync-cli"
  }()

  /// Path of the store.
  let store: String
  /// Directory of the store, kept as long as the tool.
  let scratch: Scratch
  /// A program that starts `sync-cli`, by its absolute path, and its arguments.
  var launcher: [String] = []

  /// Starts the program with these arguments, its output going to files. It reads `input`, or from `source`.
  func start(
    _ words: [String], input: [UInt8]? = nil, source: FileHandle? = nil, environment: [String: String] = [:]
  ) throws -> Running {
    var variables = [
      "SYNC_STORE": store, "PATH": "/usr/bin:/bin", "HOME": store + ".home", "SWIFT_BACKTRACE": "enable=no",
    ]
    variables.merge(environment) { $1 }
    let folder = NSTemporaryDirectory() + "sync-cli-run-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    if let input { try Data(input).write(to: URL(fileURLWithPath: folder + "/in")) }
    func handle(_ name: String, _ open: (URL) throws -> FileHandle) throws -> FileHandle {
      try open(URL(fileURLWithPath: folder + "/" + name))
    }
    for name in ["out", "err"] { try Data().write(to: URL(fileURLWithPath: folder + "/" + name)) }
    let process = try ChildProcess(
      launcher + [Self.path] + words, environment: variables,
      input: input == nil ? source : handle("in", FileHandle.init(forReadingFrom:)),
      output: handle("out", FileHandle.init(forWritingTo:)),
      error: handle("err", FileHandle.init(forWritingTo:)))
    return Running(process: process, folder: folder)
  }

  /// Runs the program to its end.
  @discardableResult
  func run(
    _ words: String..., input: [UInt8]? = nil, environment: [String: String] = [:]
  ) throws -> Result {
    try start(words, input: input, environment: environment).finish()
  }

  /// Runs the program to its end and expects exit code 0.
  @discardableResult
  func succeed(
    _ words: String..., input: [UInt8]? = nil, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Result {
    let result = try start(words, input: input).finish()
    #expect(
      result.code == 0, "sync-cli \(words.joined(separator: " ")): \(result.err)",
      sourceLocation: sourceLocation)
    return result
  }
}

extension Tool {
  /// Conflicting writes on two disconnected copies: both write one key, `other` later, and each deletes one.
  func writeApart(from other: Tool) throws {
    try succeed("put", "both", "earlier")
    try succeed("delete", "k1")
    try succeed("put", "k2", "beaten by a delete")
    try other.succeed("put", "both", "later")
    try other.succeed("delete", "k2")
    try other.succeed("put", "k3", "beta")
  }

  /// Writes with a clock that runs an hour ahead.
  func putAhead(_ key: String, _ value: String) throws {
    var environment = Environment.real()
    let now = environment.now
    environment.now = { now() + 3_600_000 }
    let store = try Store.open(
      at: store, configuration: Configuration(mode: .shared), environment: environment)
    try store.put(Key(key), Array(value.utf8))
    try store.close()
  }
}

/// A running process.
final class Running: Sendable {
  private let process: ChildProcess
  private let folder: String

  init(process: ChildProcess, folder: String) { (self.process, self.folder) = (process, folder) }

  deinit {
    try? FileManager.default.removeItem(atPath: folder)
  }

  var out: [UInt8] { (try? Data(contentsOf: URL(fileURLWithPath: folder + "/out"))).map { Array($0) } ?? [] }
  var err: String {
    (try? String(decoding: Data(contentsOf: URL(fileURLWithPath: folder + "/err")), as: UTF8.self)) ?? ""
  }

  var isRunning: Bool { process.isRunning }
  var processID: pid_t { process.processID }

  func finish() -> Tool.Result {
    let code = process.finish()
    return Tool.Result(code: code, out: out, err: err)
  }

  /// Waits for the first whole line of standard output; nil if the process ends before.
  func firstLine() -> String? {
    while isRunning {
      if let end = out.firstIndex(of: 10) { return String(decoding: out[..<end], as: UTF8.self) }
      Thread.sleep(forTimeInterval: 0.01)
    }
    return out.firstIndex(of: 10).map { String(decoding: out[..<$0], as: UTF8.self) }
  }

  func signal(_ number: Int32) { process.signal(number) }
}

/// A temporary directory, removed with its last reference.
final class Scratch: Sendable {
  let path: String

  init() throws {
    path = NSTemporaryDirectory() + "sync-cli-test-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  /// The program on the store `name` in this directory.
  func tool(_ name: String = "store") -> Tool { Tool(store: path + "/" + name, scratch: self) }

  /// The program on a new store.
  func store(_ name: String = "store") throws -> Tool {
    let tool = tool(name)
    try tool.succeed("init", "--name", name)
    return tool
  }

  /// Creates a file and its parent directories.
  func write(_ name: String, _ content: [UInt8]) throws {
    let file = path + "/" + name
    try FileManager.default.createDirectory(
      atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
    try Data(content).write(to: URL(fileURLWithPath: file))
  }

  func read(_ name: String) throws -> [UInt8] {
    Array(try Data(contentsOf: URL(fileURLWithPath: path + "/" + name)))
  }

  /// Runs `bash -c script` in this directory.
  func shell(_ script: String) throws -> (code: Int32, out: String) {
    let result = try ChildProcess.run(
      ["/usr/bin/env", "--chdir", path, "bash", "-c", script],
      environment: ["PATH": "/usr/bin:/bin", "CLI": Tool.path, "LC_ALL": "C.UTF-8"])
    return (result.code, result.text)
  }
}

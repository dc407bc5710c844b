import Foundation

/// A separate process: to be killed, or to measure memory that holds nothing but the store.
enum Child {
  static let command = "child"

  /// The child's task.
  enum Task: String {
    /// Loads that many keys, reports, and closes at end of input.
    case load
    /// Opens the existing store, puts a thousand keys, reports, and closes at end of input.
    case touch
    /// Loads and reads that many keys, and prints the bytes of memory used.
    case memory
  }

  /// Entry point of the child: `TITLE TASK FOLDER COUNT`.
  static func run(_ arguments: [String]) throws {
    guard arguments.count == 4, let task = Task(rawValue: arguments[1]), let count = Int(arguments[3]) else {
      throw BenchmarkError("a child takes TITLE TASK FOLDER COUNT")
    }
    let (type, folder) = (try Contestant.type(arguments[0]), arguments[2])
    let settings = PeerSettings(capacity: count)
    switch task {
    case .load:
      let peer = try type.init(at: folder, settings)
      try peer.load(0..<count, .scattered, each: 1000)
      try waitForTheEnd()
      try peer.close()
    case .touch:
      let peer = try type.init(at: folder, settings)
      try peer.load(0..<min(1000, count), .scattered, each: 1)
      try waitForTheEnd()
      try peer.close()
    case .memory: try printMemory(type, folder, settings, count)
    }
  }

  private static func waitForTheEnd() throws {
    FileHandle.standardOutput.write(Data("ready\n".utf8))
    while readLine() != nil {}
  }

  private static func printMemory(
    _ type: any KeyValuePeer.Type, _ folder: String, _ settings: PeerSettings, _ count: Int
  ) throws {
    // One-time allocations of libraries are not the store's.
    let other = try type.init(at: folder + "-warm", settings)
    try other.load(0..<1000, .scattered, each: 1)
    try other.readAll(0..<1000)
    try other.scanAll(1000)
    try other.close()
    let before = try Machine.anonymousBytes()
    let peer = try type.init(at: folder, settings)
    try peer.load(0..<count, .scattered, each: 1)
    try peer.readAll(0..<count)
    print(try Machine.anonymousBytes() - before)
    try peer.scanAll(count)
    print(try Machine.anonymousBytes() - before)
    try peer.close()
  }

  /// The parent's handle of a running child.
  final class Running {
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()

    init(_ title: String, _ task: Task, _ folder: String, _ count: Int) throws {
      process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
      process.arguments = [Child.command, title, task.rawValue, folder, String(count)]
      process.standardInput = input
      process.standardOutput = output
      try process.run()
    }

    /// Waits until it has done its work.
    func waitUntilReady() throws {
      let said = output.fileHandleForReading.availableData
      guard String(decoding: said, as: UTF8.self) == "ready\n" else {
        throw BenchmarkError("a child process failed")
      }
    }

    /// Kills it without a chance to close anything.
    func kill() {
      Glibc.kill(process.processIdentifier, SIGKILL)
      process.waitUntilExit()
    }

    /// Lets it close and exit.
    func end() throws {
      try input.fileHandleForWriting.close()
      try expectSuccess()
    }

    /// The numbers it prints before it exits.
    func numbers() throws -> [Int] {
      try input.fileHandleForWriting.close()
      let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
      try expectSuccess()
      return text.split(separator: "\n").compactMap { Int($0) }
    }

    private func expectSuccess() throws {
      process.waitUntilExit()
      guard process.terminationStatus == 0 else { throw BenchmarkError("a child process failed") }
    }
  }
}

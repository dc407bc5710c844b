import Foundation
import Replication
import SyncStore

/// The copy at the other end, in its own process, driven by line commands.
enum SyncServer {
  static let command = "sync-server"

  /// Entry point of the child: `FOLDER KEYS`. Prints `ADDRESS TOKEN`, then answers each line with `done`:
  /// `change N` rewrites N of the keys, `values COUNT BYTES` writes new ones, `value BYTES` one, `edit BYTES`
  /// the same one with a few changes.
  static func run(_ arguments: [String]) throws {
    guard arguments.count == 2, let keys = Int(arguments[1]) else {
      throw BenchmarkError("a sync server takes FOLDER KEYS")
    }
    let store = try Store.create(at: arguments[0], configuration: Configuration(mode: .shared))
    try Node.prepare(store, name: "server")
    try fill(store, keys)
    let node = try Node(store: store)
    let address = try wait { try await node.start(listen: Endpoint(host: "127.0.0.1", port: 0)) }
    say("\(address) \(try Node.invite(to: store, addresses: [address]))")
    var salt: UInt64 = 0
    while let line = readLine() {
      let words = line.split(separator: " ")
      if words.first == "value", words.count == 2, let size = Int(words[1]) {
        try putLarge(store, size, isEdited: false)
      } else if words.first == "edit", words.count == 2, let size = Int(words[1]) {
        try putLarge(store, size, isEdited: true)
      } else if words.first == "values", words.count == 3, let count = Int(words[1]), let size = Int(words[2])
      {
        try putValues(store, count, size)
      } else if words.first == "change", words.count == 2, let count = Int(words[1]) {
        salt += 1
        try change(store, keys, count, salt)
      }
      say("done")
    }
    try wait { await node.stop() }
    try store.close()
  }

  private static func say(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

  /// Records of 116 bytes: a key of 16 and a value of 100, with 66 incompressible bytes.
  private static func fill(_ store: Store, _ keys: Int) throws {
    for start in stride(from: 0, to: keys, by: 5000) {
      try store.transaction(durability: .relaxed) { transaction in
        for number in start..<min(start + 5000, keys) {
          try transaction.put(key(number), value(number, 0))
        }
      }
    }
    try store.sync()
  }

  private static func change(_ store: Store, _ keys: Int, _ count: Int, _ salt: UInt64) throws {
    try store.transaction { transaction in
      for index in 0..<count {
        let number = index * (keys / count)
        try transaction.put(key(number), value(number, salt))
      }
    }
  }

  /// Incompressible.
  static func noise(_ count: Int, seed: UInt64) -> [UInt8] {
    var random = seed &* 0x9E37_79B9_7F4A_7C15 | 1
    return unsafe [UInt8](unsafeUninitializedCapacity: count + 8) { buffer, initialized in
      for offset in stride(from: 0, to: count, by: 8) {
        random ^= random << 13
        random ^= random >> 7
        random ^= random << 17
        unsafe UnsafeMutableRawBufferPointer(buffer).storeBytes(
          of: random, toByteOffset: offset, as: UInt64.self)
      }
      initialized = count
    }
  }

  private static func putValues(_ store: Store, _ count: Int, _ size: Int) throws {
    for number in 0..<count {
      try store.put(Key("value \(number)"), noise(size, seed: UInt64(number + 1)), durability: .relaxed)
    }
    try store.sync()
  }

  private static func putLarge(_ store: Store, _ size: Int, isEdited: Bool) throws {
    try store.put(Key("large")) { writer in
      try pieces(ofLarge: size, isEdited: isEdited) { try writer.append($0) }
    }
  }

  /// A large value in pieces. Edited: `inserted` bytes are inserted at the start, and 1 MiB in its middle is
  /// different.
  static func pieces(
    ofLarge size: Int, isEdited: Bool, inserted: Int = 1 << 10, _ body: ([UInt8]) throws -> Void
  ) throws {
    let step = 8 << 20
    if isEdited, inserted > 0 { try body(noise(inserted, seed: 1 << 40)) }
    for start in stride(from: 0, to: size, by: step) {
      var piece = noise(min(step, size - start), seed: UInt64(start + 1))
      if isEdited, start == size / 2 / step * step {
        piece.replaceSubrange(
          0..<min(1 << 20, piece.count), with: noise(min(1 << 20, piece.count), seed: 1 << 41))
      }
      try body(piece)
    }
  }

  static func key(_ number: Int) throws -> Key {
    try Corpus.key(KeyPattern.scattered.key(number))
  }

  static func value(_ number: Int, _ salt: UInt64) -> [UInt8] {
    var random = UInt64(number) &* 0x9E37_79B9_7F4A_7C15 ^ salt &* 0xC2B2_AE3D_27D4_EB4F ^ 0x1234_5678
    var bytes = [UInt8](repeating: 0x61, count: 100)
    for index in 0..<66 {
      random ^= random << 13
      random ^= random >> 7
      random ^= random << 17
      bytes[index] = UInt8(truncatingIfNeeded: random >> 24)
    }
    return bytes
  }

  /// Runs asynchronous code from a thread that may block.
  static func wait<Answer: Sendable>(_ body: @escaping @Sendable () async throws -> Answer) throws -> Answer {
    let done = DispatchSemaphore(value: 0)
    let box = Box<Answer>()
    Task.detached {
      do { box.set(.success(try await body())) } catch { box.set(.failure(error)) }
      done.signal()
    }
    done.wait()
    guard let result = box.get() else { throw BenchmarkError("a task ended without an answer") }
    return try result.get()
  }

  private final class Box<Answer: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var result: Result<Answer, any Error>?
    func set(_ new: Result<Answer, any Error>) { lock.withLock { result = new } }
    func get() -> Result<Answer, any Error>? { lock.withLock { result } }
  }

  /// The parent's handle.
  final class Running {
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()
    let token: String

    init(_ folder: String, _ keys: Int) throws {
      process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
      process.arguments = [SyncServer.command, folder, String(keys)]
      process.standardInput = input
      process.standardOutput = output
      try process.run()
      var said = ""
      while !said.hasSuffix("\n") {
        let more = output.fileHandleForReading.availableData
        guard !more.isEmpty else { throw BenchmarkError("the sync server failed") }
        said += String(decoding: more, as: UTF8.self)
      }
      token = String(said.split(separator: " ").last ?? "").trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Sends a command, and waits until it is done.
    func tell(_ line: String) throws {
      input.fileHandleForWriting.write(Data("\(line)\n".utf8))
      guard !output.fileHandleForReading.availableData.isEmpty else {
        throw BenchmarkError("the sync server failed")
      }
    }

    /// Lets it close and exit.
    func end() throws {
      try input.fileHandleForWriting.close()
      process.waitUntilExit()
    }
  }
}

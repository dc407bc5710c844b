import Foundation
import SyncStore

/// A process that also has the store open, and keeps writing to its own keys while others are killed. For
/// each byte it receives it writes once more, which needs the lock that the killed one may have held (F13),
/// and reports what it sees.
final class SurvivingWriter {
  static let keys = 20
  /// Seconds after which an unresponsive one counts as hanging.
  private static let patience = 120

  static func key(_ number: Int) throws -> Key { try Key(bytes: Array("survivor \(number)".utf8)) }

  // MARK: Child process

  static func run(at path: String) throws -> Never {
    let store = try Store.open(at: path, configuration: Load.configuration(.shared))
    var own = try (0..<keys).map { key in
      try store.get(Self.key(key)).flatMap { Load.number(of: $0.bytes) } ?? 0
    }
    var number = own.max() ?? 0
    func write() throws {
      number += 1
      let key = Int.random(in: 0..<keys)
      try store.put(
        Self.key(key), Load.value(number), durability: Int.random(in: 0..<20) == 0 ? .full : nil)
      own[key] = number
    }
    while true {
      try write()
      var input = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
      guard poll(&input, 1, 0) == 1 else { continue }
      guard try FileHandle.standardInput.read(upToCount: 1)?.count == 1 else { exit(0) }
      try write()
      try tell(store, own)
    }
  }

  private static func tell(_ store: Store, _ own: [UInt64]) throws {
    var notes: [Load.Note] = []
    func add(_ number: UInt64, _ key: Int, _ kind: Load.Note.Kind) {
      notes.append(Load.Note(number: number, key: UInt32(key), deletes: false, kind: kind))
    }
    for key in 0..<Load.keys {
      let value = try store.get(Load.key(UInt32(key)))?.bytes
      // A value that was never written has a number that no operation has.
      add(value.map { Load.number(of: $0) ?? .max } ?? 0, key, .seen)
    }
    for (key, number) in own.enumerated() {
      let found = try store.get(Self.key(key)).flatMap { Load.number(of: $0.bytes) } ?? 0
      guard found == number else { throw Kills.Failure("own key \(key) has \(found), not \(number)") }
      add(number, key, .own)
    }
    add(0, 0, .end)
    try FileHandle.standardOutput.write(contentsOf: Data(notes.flatMap(\.bytes)))
  }

  // MARK: Parent side

  private let child = Process()
  private let (input, output) = (Pipe(), Pipe())

  init(at path: String) throws {
    Container.prepare(child, ["--survivor", path])
    (child.standardInput, child.standardOutput) = (input, output)
    try child.run()
  }

  func kill() {
    Container.kill(child.processIdentifier)
    child.waitUntilExit()
  }

  /// The values it finds under the killed process's keys, and the numbers of its own writes, 0 for none.
  func ask() throws -> (seen: [UInt64?], own: [UInt64]) {
    try input.fileHandleForWriting.write(contentsOf: Data([1]))
    var (seen, own): ([UInt64?], [UInt64]) = ([], [])
    while true {
      let note = try next()
      switch note.kind {
      case .seen: seen.append(note.number == 0 ? nil : note.number)
      case .own: own.append(note.number)
      case .end: return (seen, own)
      case .begins, .done, .opened: throw Kills.Failure("the notes of the surviving writer are another's")
      }
    }
  }

  private func next() throws -> Load.Note {
    var bytes: [UInt8] = []
    let handle = output.fileHandleForReading
    while bytes.count < 16 {
      var ready = pollfd(fd: handle.fileDescriptor, events: Int16(POLLIN), revents: 0)
      guard poll(&ready, 1, Int32(Self.patience * 1000)) == 1 else {
        throw Kills.Failure("the surviving writer does not answer")
      }
      guard let more = try handle.read(upToCount: 16 - bytes.count), !more.isEmpty else {
        throw Kills.Failure("the surviving writer has ended by itself")
      }
      bytes += more
    }
    guard let note = Load.Note(bytes[...]) else { throw Kills.Failure("the notes are broken") }
    return note
  }
}

import Foundation
import SyncStore

/// The child's work until it is killed: a mixed load on few keys, so that segments fill, are compacted and
/// removed. Each operation is reported on standard output before it starts and after it was acknowledged.
struct Load {
  static let keys = 60

  static func configuration(_ mode: Configuration.Mode) -> Configuration {
    Configuration(mode: mode, durability: .relaxed, blobThreshold: 4096, segmentBytes: 256 << 10)
  }

  /// One 16-byte report of the child: operation number, key, and event.
  struct Note {
    enum Kind: UInt8 {
      case begins = 1
      case done = 2
      /// Reports of a surviving process: the value it finds under the key, 0 for none; its own write; and the
      /// end of the list.
      case seen, own, end
      /// Duration of an opening in nanoseconds, as three reports: total, running time of its thread, and time
      /// it was runnable.
      case opened
    }
    var number: UInt64
    var key: UInt32
    var deletes: Bool
    var kind: Kind

    var bytes: [UInt8] {
      (0..<8).map { UInt8(truncatingIfNeeded: number >> UInt64($0 * 8)) }
        + (0..<4).map { UInt8(truncatingIfNeeded: key >> UInt32($0 * 8)) } + [
          deletes ? 1 : 0, kind.rawValue, 0, 0,
        ]
    }

    init(number: UInt64, key: UInt32, deletes: Bool, kind: Kind) {
      (self.number, self.key, self.deletes, self.kind) = (number, key, deletes, kind)
    }

    init?(_ bytes: ArraySlice<UInt8>) {
      let bytes = Array(bytes)
      guard bytes.count == 16, let kind = Kind(rawValue: bytes[13]) else { return nil }
      number = bytes[0..<8].reversed().reduce(0) { $0 << 8 | UInt64($1) }
      key = bytes[8..<12].reversed().reduce(0) { $0 << 8 | UInt32($1) }
      (deletes, self.kind) = (bytes[12] == 1, kind)
    }
  }

  static func key(_ number: UInt32) throws -> Key { try Key(bytes: Array("key \(number)".utf8)) }

  /// The value that operation `number` writes: its number, then bytes derived from it.
  static func value(_ number: UInt64) -> [UInt8] {
    let count = number % 50 == 0 ? 5000 : Int(number &* 2_654_435_761 % 3000)
    return (0..<8).map { UInt8(truncatingIfNeeded: number >> UInt64($0 * 8)) }
      + (0..<count).map { UInt8(truncatingIfNeeded: number &+ UInt64($0)) }
  }

  /// The operation that wrote this value; nil if none did.
  static func number(of value: [UInt8]) -> UInt64? {
    guard value.count >= 8 else { return nil }
    let number = value[0..<8].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    return Self.value(number) == value ? number : nil
  }

  static func run(at path: String, from first: UInt64, _ mode: Configuration.Mode) throws -> Never {
    let store = try Store.open(at: path, configuration: configuration(mode))
    var number = first
    while true {
      let count = Int.random(in: 0..<8) == 0 ? 3 : 1
      let keys = Array(Set((0..<count).map { _ in UInt32.random(in: 0..<UInt32(Self.keys)) }))
      let deletes = Int.random(in: 0..<6) == 0
      try tell(keys, number, deletes, .begins)
      let durability: Durability? = Int.random(in: 0..<20) == 0 ? .full : nil
      try store.transaction(durability: durability) { transaction in
        for key in keys {
          if deletes {
            try transaction.delete(Self.key(key))
          } else {
            try transaction.put(Self.key(key), value(number))
          }
        }
      }
      try tell(keys, number, deletes, .done)
      number += 1
    }
  }

  /// Opens the store, as the first opening of this process, reports the duration, and waits to be killed.
  static func open(at path: String, _ mode: Configuration.Mode) throws -> Never {
    let (store, time) = try OpeningTime.of { try Store.open(at: path, configuration: configuration(mode)) }
    let notes = [time.all, time.running, time.ready].flatMap { milliseconds in
      Note(number: UInt64(milliseconds * 1e6), key: 0, deletes: false, kind: .opened).bytes
    }
    try FileHandle.standardOutput.write(contentsOf: Data(notes))
    while true { withExtendedLifetime(store) { _ = sleep(1) } }
  }

  private static func tell(_ keys: [UInt32], _ number: UInt64, _ deletes: Bool, _ kind: Note.Kind) throws {
    let notes = keys.flatMap { Note(number: number, key: $0, deletes: deletes, kind: kind).bytes }
    try FileHandle.standardOutput.write(contentsOf: Data(notes))
  }
}

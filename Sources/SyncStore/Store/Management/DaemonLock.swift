/// The lock that the one daemon of a store holds while it lives.
///
/// It belongs to an open file description, so that it also works between processes in different PID
/// namespaces (containers), and is released when the daemon ends in any way.
///
/// Invariant: a test of the lock holds `gateByte` shared, and acquiring it holds `gateByte` exclusively: a
/// test never makes a daemon's attempt fail.
package final class DaemonLock: Sendable {
  /// The daemon's published description of itself.
  package struct Holder: Hashable, Sendable {
    /// Process ID in its own machine or container; nil if not published yet.
    package var process: Int32?
    /// Address on which it listens; nil while it does not.
    package var address: String?
    /// Start time in milliseconds since 1970.
    package var since: UInt64?
  }

  /// The file's name in the store's directory. Its content describes the holder, and is valid only while the
  /// lock is held.
  static let fileName = "daemon.lock"
  private static let daemonByte = 0
  private static let gateByte = 1
  private static let largestContent = 1024

  private let file: any StorageFile
  private let since: UInt64

  /// Acquires the lock, until `end` or the end of the process.
  ///
  /// - Throws: `.busy` if another daemon serves the store, which is named; `.inputOutput` …
  package init(_ store: Store) throws(StoreError) {
    since = store.environment.now()
    let path = store.path + "/" + Self.fileName
    file = try store.environment.storage.open(path, .openOrCreate)
    guard try file.lock(byte: Self.gateByte, .exclusive, wait: true),
      try file.lock(byte: Self.daemonByte, .exclusive, wait: false)
    else { throw Self.busy(Self.readHolder(in: file), path: store.path) }
    try publish(address: nil)
    _ = try file.lock(byte: Self.gateByte, .none, wait: false)
  }

  /// Publishes the address on which the daemon listens.
  package func publish(address: String?) throws(StoreError) {
    var text = "process \(SystemCall.processID)\nsince \(since)\n"
    if let address { text += "address \(address)\n" }
    try file.resize(to: 0)
    try file.write(Array(text.utf8), at: 0)
  }

  /// Releases the lock.
  package func end() {
    try? file.resize(to: 0)
    _ = try? file.lock(byte: Self.daemonByte, .none, wait: false)
  }

  /// The daemon that serves the store at present; nil if none does.
  package static func holder(of store: Store) throws(StoreError) -> Holder? {
    let path = store.path + "/" + fileName
    guard let file = try store.environment.storage.openIfPresent(path, .readOnly),
      try file.lock(byte: gateByte, .shared, wait: true)
    else { return nil }
    // Closing the file releases both locks.
    if try file.lock(byte: daemonByte, .shared, wait: false) {
      _ = try file.lock(byte: daemonByte, .none, wait: false)
      _ = try file.lock(byte: gateByte, .none, wait: false)
      return nil
    }
    _ = try file.lock(byte: gateByte, .none, wait: false)
    return readHolder(in: file)
  }

  private static func readHolder(in file: any StorageFile) -> Holder {
    var holder = Holder()
    let text = (try? file.contents(limit: largestContent)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    for line in text.split(separator: "\n") {
      let words = line.split(separator: " ", maxSplits: 1)
      guard words.count == 2 else { continue }
      switch words[0] {
      case "process": holder.process = Int32(words[1])
      case "address": holder.address = String(words[1])
      case "since": holder.since = UInt64(words[1])
      default: break
      }
    }
    return holder
  }

  private static func busy(_ holder: Holder, path: String) -> StoreError {
    let process = holder.process.map { "process \($0)" } ?? "another process"
    let address = holder.address.map { ", which listens on \($0)" } ?? ""
    return StoreError(
      .busy, "a daemon serves this store already (\(process)\(address)): use that one, or end it first",
      path: path)
  }
}

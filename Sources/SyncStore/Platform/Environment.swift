private import Glibc

/// Everything a store needs from its machine. Tests use a simulated one.
package struct Environment: Sendable {
  /// The file operations.
  package var storage: any Storage
  /// The wall clock, in milliseconds since 1970.
  package var now: @Sendable () -> UInt64
  /// Milliseconds by a clock that is never set and that counts while the machine is suspended: it reveals
  /// that the wall clock was set. Nil if there is none, as on a simulated machine.
  package var elapsed: (@Sendable () -> UInt64)?
  /// Returns that many unpredictable bytes.
  package var random: @Sendable (Int) -> [UInt8]
  /// Identity of the machine (rule R9).
  package var machine: String
  /// Identity of its boot.
  package var boot: String
  /// Identity of the process: tests run several in one.
  package var process: Int
  /// Which thread compacts segments when they are due.
  package var compactionMode = CompactionMode.background
  /// Whether the next segment is prepared concurrently with the writer. A simulated process has one thread.
  package var preallocatesSegments = true
  /// Names new incarnations where a test must know their order; nil draws them from `random`.
  package var actors: (@Sendable () -> ActorID)?
  /// Whether the tail of the journal is written with `pwrite`, because a store to mapped memory may fail
  /// (rule R1, F26).
  package var usesPwrite = false
  /// Journal positions scanned per step when a round is opened, while writers wait.
  package var scanBatchPositions: UInt64 = 1024
  /// Bytes that recovery from a failed sync writes into a segment before naming it; the rest follows.
  package var salvageBatchBytes = 1 << 30
  /// Called where opening a round or closing a full state yields to other threads. Tests use it to interleave
  /// other work.
  package var onScanYield: (@Sendable () -> Void)?
  /// Called where installing a compacted segment in the index yields to other threads.
  package var onInstallYield: (@Sendable () -> Void)?

  /// Which thread compacts segments.
  package enum CompactionMode: Sendable {
    /// A background thread.
    case background
    /// The next writer: a simulated process has one thread.
    case byNextWriter
    /// Only `Store.compact`.
    case onRequest
  }

  /// All of them.
  package init(
    storage: any Storage, now: @escaping @Sendable () -> UInt64, random: @escaping @Sendable (Int) -> [UInt8],
    machine: String, boot: String, process: Int = 0
  ) {
    (self.storage, self.now, self.random) = (storage, now, random)
    (self.machine, self.boot, self.process) = (machine, boot, process)
  }

  /// This machine. `handlesSignals` as in `DiskStorage`.
  package static func real(handlesSignals: Bool = true) -> Environment {
    let storage = DiskStorage(handlesSignals: handlesSignals)
    var environment = Environment(
      storage: storage, now: { SystemCall.wallMilliseconds() }, random: { SecureRandom.bytes($0) },
      machine: machine, boot: boot)
    environment.elapsed = { SystemCall.bootMilliseconds() }
    return environment
  }

  // Constant for the life of a process, so read once.
  private static let machine = line(of: "/etc/machine-id")
  private static let boot = line(of: "/proc/sys/kernel/random/boot_id")

  /// A missing file (a container without a machine-id) reads as empty: fewer clues, no failure.
  private static func line(of path: String) -> String {
    let bytes = (try? DiskStorage(handlesSignals: false).kernelFile(path)) ?? []
    return String(decoding: bytes.prefix { $0 != 0x0A }, as: UTF8.self)
  }
}

extension Environment {
  /// Hash of the boot identity, for files; 0 if it is unknown.
  var bootWord: UInt64 { boot.isEmpty ? 0 : XXH3.hash64(Array("boot \(boot)".utf8), seed: 0) }

  /// A random 64-bit number.
  @Sendable func randomWord() -> UInt64 { random(8).reduce(0) { $0 << 8 | UInt64($1) } }

  /// Name for a new incarnation.
  func newActor() -> ActorID {
    if let actors { return actors() }
    guard let actor = ActorID(bytes: random(16)) else { preconditionFailure("16 bytes were asked for") }
    return actor
  }

  /// Name for a new incarnation, where the generator may repeat itself because a running machine was cloned:
  /// state known to differ between the clones is hashed into the name.
  func newActor(mixing known: [UInt8]) -> ActorID {
    if let actors { return actors() }
    let name = hedged(known)
    return ActorID(high: name.high, low: name.low)
  }

  /// Name for a new round. `known` is what this copy holds: two incarnations with the same random numbers
  /// must not get the same name unless they hold the same (rule R9).
  package func newMark(mixing known: [UInt8]) -> RoundMark {
    let name = hedged(known)
    return RoundMark(high: name.high, low: name.low)
  }

  private func hedged(_ known: [UInt8]) -> (high: UInt64, low: UInt64) { XXH3.hash128(random(16) + known) }
}

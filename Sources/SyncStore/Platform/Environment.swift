private import Glibc

/// All that a store asks of the machine it runs on. Tests give it a simulated one.
package struct Environment: Sendable {
  /// Where files are.
  package var storage: any Storage
  /// The wall clock, in milliseconds since 1970.
  package var now: @Sendable () -> UInt64
  /// Milliseconds since some moment by a clock that is never set and that counts while the machine is suspended: setting the wall clock
  /// shows against it. Nil where there is none, as on a simulated machine.
  package var elapsed: (@Sendable () -> UInt64)?
  /// So many unpredictable bytes.
  package var random: @Sendable (Int) -> [UInt8]
  /// Which machine this is (rule R9).
  package var machine: String
  /// Which boot of it.
  package var boot: String
  /// Which process: tests run several in one.
  package var process: Int
  /// Who compacts segments when it is time.
  package var compactionMode = CompactionMode.background
  /// Is the next segment made ready beside the writer? A simulated process has one thread.
  package var preallocatesSegments = true
  /// Names new incarnations, where a test must know their order; nil draws them from `random`.
  package var actors: (@Sendable () -> ActorID)?
  /// Is the tail of the journal written with `pwrite`, because a store to mapped memory may fail (rule R1, F26)?
  package var usesPwrite = false
  /// How many positions of the journal are looked through at once, when a round is opened, while writers wait.
  package var scanBatchPositions: UInt64 = 1024
  /// Bytes that a recovery from a failed sync writes into a segment before it has its name; what is above it follows.
  package var salvageBatchBytes = 1 << 30
  /// Called where a round that is being opened, or a full state that is being closed, lets others go on. Tests do then what others might.
  package var onScanYield: (@Sendable () -> Void)?
  /// The same where the index is being moved over to a compacted segment.
  package var onInstallYield: (@Sendable () -> Void)?

  /// Who compacts segments.
  package enum CompactionMode: Sendable {
    /// A thread of the background.
    case background
    /// The next writer: a simulated process has one thread.
    case byNextWriter
    /// Nobody but `Store.compact`.
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

  // A process is of one machine and one boot: they are read once.
  private static let machine = line(of: "/etc/machine-id")
  private static let boot = line(of: "/proc/sys/kernel/random/boot_id")

  /// A file that is not there (a container without a machine-id) reads as nothing: fewer clues, no failure.
  private static func line(of path: String) -> String {
    let bytes = (try? DiskStorage(handlesSignals: false).kernelFile(path)) ?? []
    return String(decoding: bytes.prefix { $0 != 0x0A }, as: UTF8.self)
  }
}

extension Environment {
  /// The boot as it is named in files; 0 if the machine does not tell.
  var bootWord: UInt64 { boot.isEmpty ? 0 : XXH3.hash64(Array("boot \(boot)".utf8), seed: 0) }

  /// A random 64-bit number.
  @Sendable func randomWord() -> UInt64 { random(8).reduce(0) { $0 << 8 | UInt64($1) } }

  /// A name for a new incarnation.
  func newActor() -> ActorID {
    if let actors { return actors() }
    guard let actor = ActorID(bytes: random(16)) else { preconditionFailure("16 bytes were asked for") }
    return actor
  }

  /// The same where the generator may repeat itself, since a running machine was cloned: what is known to differ between the two
  /// goes into the name.
  func newActor(besides known: [UInt8]) -> ActorID {
    if let actors { return actors() }
    let name = hedged(known)
    return ActorID(high: name.high, low: name.low)
  }

  /// A name for a new round. `known` is what this copy holds by now: two lives with the same random numbers must not come to one name,
  /// unless they hold the same (rule R9).
  func newMark(besides known: [UInt8]) -> RoundMark {
    let name = hedged(known)
    return RoundMark(high: name.high, low: name.low)
  }

  private func hedged(_ known: [UInt8]) -> (high: UInt64, low: UInt64) { XXH3.hash128(random(16) + known) }
}

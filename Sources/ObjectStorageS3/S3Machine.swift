internal import SyncStore

/// Everything that a store needs from its machine, and the sizes of uploads. Tests use others.
package struct S3Machine: Sendable {
  /// The wall clock, in milliseconds since 1970.
  package var now: @Sendable () -> UInt64 = { SystemCall.wallMilliseconds() }
  /// Milliseconds by a clock that is never set.
  package var elapsed: @Sendable () -> UInt64 = { SystemCall.bootMilliseconds() }
  /// An unpredictable number.
  package var random: @Sendable () -> UInt64 = { SystemCall.randomWord() }
  /// Waits for so many milliseconds, less if the task is cancelled.
  package var sleep: @Sendable (UInt64) async -> Void = { try? await Task.sleep(for: .milliseconds($0)) }
  /// A larger object is written in parts.
  package var singlePutBytes = 32 << 20
  /// The size of a part; only the last one may have less than 5 MiB.
  package var partBytes = 16 << 20

  /// This machine.
  package init() {}
}

/// The server's clock, as its answers state it.
struct ServerClock: Sendable {
  /// Below this the own clock signs: servers allow 15 minutes.
  static let toleratedMilliseconds: Int64 = 5 * 60_000

  /// Milliseconds since 1970, as stated with the last answer.
  private(set) var stated: UInt64?
  /// Added to the own clock when a request is signed.
  private(set) var offset: Int64 = 0

  /// The time to sign with. `own` is the own clock.
  func time(own: UInt64) -> UInt64 { UInt64(max(0, Int64(own) + offset)) }

  /// Takes the time that an answer states.
  mutating func learn(_ time: UInt64, own: UInt64) {
    stated = time
    let difference = Int64(time) - Int64(own)
    offset = abs(difference) > Self.toleratedMilliseconds ? difference : 0
  }

  /// Takes the time that the server states in place of the one that it has refused.
  mutating func correct(_ time: UInt64, own: UInt64) { offset = Int64(time) - Int64(own) }
}

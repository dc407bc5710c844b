/// Whether the next batch of a round is deflated: a value that is told what was measured, and knows no clock.
///
/// Deflating pays where the link, or the other side, is slower than deflating is; else it only adds to the time. Both
/// questions are answered by the time between two acknowledgements: if deflating fills most of it, deflating is what all
/// waits for, and the batches go plain. While they go plain, the rate of the link shows, and if deflated batches would pass
/// faster, they are deflated again. A round begins deflated: on a slow link nothing is sent larger than it must be, and the few
/// batches that this costs on a fast one are soon sent.
package struct CompressionChoice: Hashable, Sendable {
  /// What was measured of one batch.
  package struct Measure: Hashable, Sendable {
    /// Bytes before it was sealed.
    package var payload: Int
    /// Bytes sealed.
    package var sealed: Int
    /// Nanoseconds that reading and sealing took; nil if the batch was sent plain.
    package var deflating: UInt64?
    /// Nanoseconds from its sending, or from the acknowledgement of the batch before it, whichever was later, to its own.
    package var passing: UInt64

    /// All fields.
    package init(payload: Int, sealed: Int, deflating: UInt64?, passing: UInt64) {
      (self.payload, self.sealed, self.deflating, self.passing) = (payload, sealed, deflating, passing)
    }
  }

  /// Below so many bytes deflating costs nothing that could be noticed.
  package static let smallBytes = 64 << 10
  /// Deflating is what all waits for if it fills more than this share of the time.
  private static let busyShare = 0.85
  /// Deflated batches must pass so much faster to be worth the other side's inflating.
  private static let gain = 0.9
  /// How much the newest measure counts.
  private static let weight = 0.4

  /// Nanoseconds for each byte of payload to be deflated, and what part of it is left then.
  private var deflating: Double?
  private var ratio = 1.0
  /// The share of the time that deflating filled.
  private var busy: Double?
  /// Nanoseconds for each byte on the wire.
  private var passing: Double?
  private var isPlain = false

  /// Nothing was measured yet.
  package init() {}

  /// Is a batch with so many bytes of payload to be deflated?
  package func deflates(_ payload: Int) -> Bool { payload < Self.smallBytes || !isPlain }

  /// A batch was acknowledged.
  package mutating func acknowledged(_ measure: Measure) {
    guard measure.payload >= Self.smallBytes, measure.sealed > 0, measure.passing > 0 else { return }
    let passed = Double(measure.passing) / Double(measure.sealed)
    if let time = measure.deflating {
      deflating = Self.mean(deflating, Double(time) / Double(measure.payload))
      ratio = Self.mean(ratio == 1 ? nil : ratio, Double(measure.sealed) / Double(measure.payload))
      busy = Self.mean(busy, min(1, Double(time) / Double(measure.passing)))
      if busy ?? 0 > Self.busyShare { (isPlain, passing) = (true, nil) }
    } else {
      passing = Self.mean(passing, passed)
      guard let deflating, let passing else { return }
      // Of a pipeline the slowest part counts.
      if max(deflating, ratio * passing) < Self.gain * passing { (isPlain, busy) = (false, nil) }
    }
  }

  private static func mean(_ old: Double?, _ new: Double) -> Double {
    guard let old else { return new }
    return old + weight * (new - old)
  }
}

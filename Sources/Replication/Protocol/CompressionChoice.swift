/// Decides from measurements whether the next batch of a round is deflated. A pure value without a clock.
///
/// Deflating pays where the link is slower than the compressor; elsewhere it only adds processor time on both
/// sides. The bottleneck shows in the time between two acknowledgements.
///
/// A round begins deflated. If deflating fills most of that time, or if the link is so fast that a few larger
/// batches cost little, uncompressed batches are tried. They are kept if they pass no slower than the
/// deflated ones did, or than deflating takes. If they are slower, then or later, batches are deflated again,
/// and the distance to the next try doubles. So a slow link carries nothing larger than necessary, and on a
/// fast one little is deflated.
package struct CompressionChoice: Hashable, Sendable {
  /// Measurements of one batch.
  package struct Measure: Hashable, Sendable {
    /// Bytes before compression and encryption.
    package var payload: Int
    /// Bytes after encryption.
    package var encrypted: Int
    /// Nanoseconds that reading and encrypting took; nil if the batch was sent uncompressed.
    package var deflateTime: UInt64?
    /// Nanoseconds until its acknowledgement, from its sending or from the previous acknowledgement,
    /// whichever was later.
    package var transferTime: UInt64

    /// All fields.
    package init(payload: Int, encrypted: Int, deflateTime: UInt64?, transferTime: UInt64) {
      (self.payload, self.encrypted, self.deflateTime, self.transferTime) = (
        payload, encrypted, deflateTime, transferTime
      )
    }
  }

  /// Batches with fewer bytes are always deflated: the cost is negligible.
  package static let smallBytes = 64 << 10
  /// Deflating is the bottleneck if it fills more than this share of the time.
  private static let busyShare = 0.85
  /// Nanoseconds for a byte on the wire at which a link is fast enough for a try: 16 MB/s.
  private static let fastLink = 62.5
  /// Factors by which uncompressed batches may be slower before they are deflated again: at first, and after
  /// more measurements.
  ///
  /// Times vary, mostly with the receiver's disk. Where the link is the bottleneck, compressible data passes
  /// slower by more than these factors.
  private static let tolerances = (first: 1.4, later: 1.2)
  /// An uncompressed batch counts for at most this multiple of a deflated one.
  ///
  /// A single stall, mostly of the receiver's disk, says nothing about compression. The cap is above the
  /// tolerances, so that consistently slow batches are still detected.
  private static let longest = 2.0
  /// Measurements of a fast link before a try: the first batch also waited for the receiver's earlier work.
  private static let fastMeasures = 2
  /// Measurements of a try before the decision.
  private static let leastMeasures = 4
  /// Measurements of a try before the narrower tolerance applies.
  private static let manyMeasures = 12
  /// Measurements until the next try after a failed one: minimum and maximum.
  private static let patience = 32...4096
  /// Weight of the newest measurement once there are many.
  private static let weight = 0.1

  /// Nanoseconds per byte of payload, deflated and uncompressed.
  private var deflated = 0.0
  private var uncompressed = 0.0
  /// Share of the time that deflating fills.
  private var busy = 0.0
  /// Nanoseconds that deflating takes per byte of payload.
  private var work = 0.0
  private var sendsUncompressed = false
  /// Measurements since the last switch.
  private var measures = 0
  /// Measurements needed before uncompressed batches are tried.
  private var untilTry = 1

  /// Creates a choice without measurements.
  package init() {}

  /// Whether a batch with `payload` bytes is to be deflated.
  package func deflates(_ payload: Int) -> Bool { payload < Self.smallBytes || !sendsUncompressed }

  /// Records the measurements of an acknowledged batch.
  package mutating func acknowledged(_ measure: Measure) {
    guard measure.payload >= Self.smallBytes, measure.encrypted > 0, measure.transferTime > 0 else { return }
    let time = Double(measure.transferTime) / Double(measure.payload)
    if let deflating = measure.deflateTime {
      // Batches sent before a switch are acknowledged after it.
      guard !sendsUncompressed else { return }
      measures += 1
      deflated = Self.mean(deflated, time, of: measures)
      busy = Self.mean(busy, min(1, Double(deflating) / Double(measure.transferTime)), of: measures)
      work = Self.mean(work, Double(deflating) / Double(measure.payload), of: measures)
      considerUncompressed(isFast: Double(measure.transferTime) / Double(measure.encrypted) <= Self.fastLink)
    } else if sendsUncompressed {
      measures += 1
      // The first uncompressed batch waited for the deflated ones before it.
      if measures > 1 {
        uncompressed = Self.mean(uncompressed, min(time, Self.longest * deflated), of: measures - 1)
      }
      evaluateUncompressed()
    }
  }

  private mutating func considerUncompressed(isFast: Bool) {
    guard measures >= untilTry, busy > Self.busyShare || isFast && measures >= Self.fastMeasures else {
      return
    }
    (sendsUncompressed, measures) = (true, 0)
  }

  private mutating func evaluateUncompressed() {
    let tolerance = measures > Self.manyMeasures ? Self.tolerances.later : Self.tolerances.first
    // Deflated batches pass no faster than they are deflated, however fast the measured ones were.
    guard measures > Self.leastMeasures, uncompressed > max(tolerance * deflated, work) else { return }
    untilTry = min(max(2 * untilTry, Self.patience.lowerBound), Self.patience.upperBound)
    (sendsUncompressed, measures) = (false, 0)
  }

  /// The running mean after `count` measurements: of all, or weighted to the last ones. For a count of 1 it
  /// is `new`, whatever `old` is.
  private static func mean(_ old: Double, _ new: Double, of count: Int) -> Double {
    old + max(weight, 1 / Double(count)) * (new - old)
  }
}

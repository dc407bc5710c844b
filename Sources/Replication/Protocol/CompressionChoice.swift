/// Whether the next batch of a round is deflated: a value that is told what was measured, and knows no clock.
///
/// Deflating pays where the link is slower than deflating is; else it only adds to the time, of this processor and of the one that
/// inflates. What all waits for shows in the time between two acknowledgements. A round begins deflated. If deflating fills most of
/// that time, or the link is so fast that a few larger batches are soon over, batches are sent plain for a try, and go on so if they
/// pass no slower than the deflated ones did, or than deflating them takes; if not, or later no more, they are deflated again, and
/// the next try is twice as far away. So nothing is sent larger than it must be on a slow link, and on a fast one little is deflated.
package struct CompressionChoice: Hashable, Sendable {
  /// What was measured of one batch.
  package struct Measure: Hashable, Sendable {
    /// Bytes before it was sealed.
    package var payload: Int
    /// Bytes sealed.
    package var encrypted: Int
    /// Nanoseconds that reading and sealing took; nil if the batch was sent plain.
    package var deflateTime: UInt64?
    /// Nanoseconds from its sending, or from the acknowledgement of the batch before it, whichever was later, to its own.
    package var transferTime: UInt64

    /// All fields.
    package init(payload: Int, encrypted: Int, deflateTime: UInt64?, transferTime: UInt64) {
      (self.payload, self.encrypted, self.deflateTime, self.transferTime) = (
        payload, encrypted, deflateTime, transferTime
      )
    }
  }

  /// Below so many bytes deflating costs nothing that could be noticed.
  package static let smallBytes = 64 << 10
  /// Deflating is what all waits for if it fills more than this share of the time.
  private static let busyShare = 0.85
  /// Nanoseconds for a byte on the wire of a link that is fast enough to try: 16 MB in a second.
  private static let fastLink = 62.5
  /// Plain batches may pass so much slower before they are deflated again: at first, and once there were more measures. Times vary, by
  /// what the disk of the receiver is doing above all; and where the link is what all waits for, what is worth deflating passes slower by
  /// more than that.
  private static let tolerances = (first: 1.4, later: 1.2)
  /// A plain batch counts for no more than so many deflated ones: what held up one, the receiver's disk above all, says nothing of the
  /// way it was sent. It is more than the tolerances: if all are slow, that is noticed.
  private static let longest = 2.0
  /// Measures of a link that is fast enough to try before that is done: the first one waited for whatever the receiver had to do first.
  private static let fastMeasures = 2
  /// Measures of a try before it is judged.
  private static let leastMeasures = 4
  /// Measures of a try before it is judged more closely.
  private static let manyMeasures = 12
  /// After a try that failed the next one is so many measures away, at least and at most.
  private static let patience = 32...4096
  /// How much the newest of many measures counts.
  private static let weight = 0.1

  /// Nanoseconds in which a byte of payload passes, either way.
  private var deflated = 0.0
  private var uncompressed = 0.0
  /// The share of the time that deflating fills.
  private var busy = 0.0
  /// Nanoseconds that deflating takes for a byte of payload.
  private var work = 0.0
  private var sendsUncompressed = false
  /// How many there were since the way was changed.
  private var measures = 0
  /// So many are to come before plain batches are tried.
  private var untilTry = 1

  /// Nothing was measured yet.
  package init() {}

  /// Is a batch with so many bytes of payload to be deflated?
  package func deflates(_ payload: Int) -> Bool { payload < Self.smallBytes || !sendsUncompressed }

  /// A batch was acknowledged.
  package mutating func acknowledged(_ measure: Measure) {
    guard measure.payload >= Self.smallBytes, measure.encrypted > 0, measure.transferTime > 0 else { return }
    let time = Double(measure.transferTime) / Double(measure.payload)
    if let deflating = measure.deflateTime {
      // What was sent before the way was changed is acknowledged after that.
      guard !sendsUncompressed else { return }
      measures += 1
      deflated = Self.mean(deflated, time, of: measures)
      busy = Self.mean(busy, min(1, Double(deflating) / Double(measure.transferTime)), of: measures)
      work = Self.mean(work, Double(deflating) / Double(measure.payload), of: measures)
      considerUncompressed(isFast: Double(measure.transferTime) / Double(measure.encrypted) <= Self.fastLink)
    } else if sendsUncompressed {
      measures += 1
      // The first one waited for those before it.
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
    // Whatever the others did: deflated ones pass no faster than they are deflated.
    guard measures > Self.leastMeasures, uncompressed > max(tolerance * deflated, work) else { return }
    untilTry = min(max(2 * untilTry, Self.patience.lowerBound), Self.patience.upperBound)
    (sendsUncompressed, measures) = (false, 0)
  }

  /// The mean of so many: of all, or of the last ones where there are many. Of one it is that one, whatever there was before.
  private static func mean(_ old: Double, _ new: Double, of count: Int) -> Double {
    old + max(weight, 1 / Double(count)) * (new - old)
  }
}

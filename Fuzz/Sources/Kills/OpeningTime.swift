import Foundation

/// Duration of an opening in milliseconds: total, running time of its thread, and time the thread was
/// runnable without a processor. The rest was spent waiting for something else: a disk, a lock.
struct OpeningTime {
  let all: Double, running: Double, ready: Double

  /// Measures `body` on the calling thread.
  static func of<Result>(_ body: () throws -> Result) rethrows -> (Result, OpeningTime) {
    // `delay()` is called outermost: reading its file takes as long as a part of an opening.
    let (delayed, begin, ran) = (delay(), seconds(CLOCK_MONOTONIC), seconds(CLOCK_THREAD_CPUTIME_ID))
    let result = try body()
    let running = seconds(CLOCK_THREAD_CPUTIME_ID) - ran
    let all = seconds(CLOCK_MONOTONIC) - begin
    return (result, OpeningTime(all: all * 1e3, running: running * 1e3, ready: (delay() - delayed) * 1e3))
  }

  private static func seconds(_ clock: clockid_t) -> Double {
    var time = timespec()
    clock_gettime(clock, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  /// How long this thread has been runnable without running; 0 where the kernel does not report it.
  private static func delay() -> Double {
    guard let file = FileHandle(forReadingAtPath: "/proc/thread-self/schedstat"),
      let text = try? file.readToEnd()
    else { return 0 }
    let fields = String(decoding: text, as: UTF8.self).split(separator: " ")
    return fields.count > 1 ? (Double(fields[1]) ?? 0) / 1e9 : 0
  }
}

extension [Double] {
  /// Median, 99th percentile and maximum of these milliseconds.
  var summary: String {
    guard let last = self.max() else { return "no time" }
    return
      "\(share(0.5)) ms in the middle, \(share(0.99)) ms at the 99th percentile, \(Self.figure(last)) ms at most"
  }

  /// The quantile for this share.
  fileprivate func share(_ share: Double) -> String { Self.figure(sorted()[Int(Double(count - 1) * share)]) }

  fileprivate static func figure(_ milliseconds: Double) -> String { String(format: "%.2f", milliseconds) }
}

extension [OpeningTime] {
  /// The durations in a sentence.
  var summary: String {
    let slow = sorted { $0.all < $1.all }.suffix(Swift.max(count / 100, 1))
    func mean(_ part: KeyPath<OpeningTime, Double>) -> String {
      [Double].figure(slow.reduce(0) { $0 + $1[keyPath: part] } / Double(Swift.max(slow.count, 1)))
    }
    guard !isEmpty else { return "did not happen" }
    return """
      took \(map(\.all).summary); of the slowest hundredth, \(mean(\.all)) ms on average, its thread ran for \(mean(\.running)) and \
      waited for a processor for \(mean(\.ready)); at the 99th percentile it ran for \(map(\.running).share(0.99)) ms
      """
  }
}

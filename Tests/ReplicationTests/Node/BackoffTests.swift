import Replication
import Testing

@Suite struct BackoffTests {
  @Test func `F71 the wait doubles with each failure up to the cap`() {
    var backoff = Backoff(base: 1000, cap: 60_000)
    let longest = (0..<9).map { _ in backoff.failed(random: 0) * 2 }
    #expect(longest == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000])
  }

  @Test(arguments: [0, 1, 12_345, .max] as [UInt64])
  func `F71 jitter keeps the wait between half of the bound and the bound`(random: UInt64) {
    var backoff = Backoff(base: 1000, cap: 300_000)
    for failure in 0..<200 {
      let bound = failure < 9 ? UInt64(1000) << UInt64(failure) : 300_000
      let wait = backoff.failed(random: random)
      #expect(wait >= min(bound, 300_000) / 2 && wait <= min(bound, 300_000))
    }
  }

  @Test func `different random numbers give different waits`() {
    let waits = Set(
      (0..<100).map { random in
        var backoff = Backoff()
        return backoff.failed(random: UInt64(random) &* 0x9E37_79B9_7F4A_7C15)
      })
    #expect(waits.count > 50)
  }

  @Test func `the delay starts over after a success`() {
    var backoff = Backoff(base: 10, cap: 1000)
    for _ in 0..<5 { _ = backoff.failed(random: 0) }
    backoff.succeeded()
    #expect(backoff.failures == 0)
    #expect(backoff.failed(random: 0) == 5)
  }
}

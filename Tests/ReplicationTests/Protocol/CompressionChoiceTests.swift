import Replication
import Testing

@Suite struct CompressionChoiceTests {
  private static let payload = 1 << 20

  /// Simulates a sender with a compression rate over a link with a rate, both in bytes a second. Returns the
  /// seconds for that many batches, and the bytes sent. A pipeline: the slower part counts.
  private static func run(
    deflating: Double, link: Double, ratio: Double = 0.7, batches: Int, always: Bool? = nil,
    sharing: Bool = false
  ) -> (seconds: Double, bytes: Int) {
    var choice = CompressionChoice()
    var (seconds, bytes) = (0.0, 0)
    for _ in 0..<batches {
      let deflates = always ?? choice.deflates(payload)
      let sealed = deflates ? Int(Double(payload) * ratio) : payload
      let sealing = deflates ? Double(payload) / deflating : 0
      // On one machine both sides share the processors: each waits for the other's work.
      let rest = sharing ? Double(payload) / 50e6 : 0
      let passing = max(sealing + rest, Double(sealed) / link)
      seconds += passing
      bytes += sealed
      choice.acknowledged(
        CompressionChoice.Measure(
          payload: payload, encrypted: sealed, deflateTime: deflates ? UInt64(sealing * 1e9) : nil,
          transferTime: UInt64(passing * 1e9)))
    }
    return (seconds, bytes)
  }

  @Test(
    "On a fast link the choice costs hardly more than sending all batches uncompressed",
    arguments: [200e6, 1e9, 10e9])
  func fastLink(link: Double) {
    let chosen = Self.run(deflating: 100e6, link: link, batches: 200)
    let plain = Self.run(deflating: 100e6, link: link, batches: 200, always: false)
    // The first few are compressed before any rate is known.
    #expect(chosen.seconds <= plain.seconds * 1.02 + 4 * Double(Self.payload) / 100e6)
  }

  @Test("On a slow link no batch is sent larger than necessary", arguments: [100e3, 1e6, 10e6, 15e6])
  func slowLink(link: Double) {
    let chosen = Self.run(deflating: 100e6, link: link, batches: 200)
    let deflated = Self.run(deflating: 100e6, link: link, batches: 200, always: true)
    #expect(chosen.bytes == deflated.bytes && chosen.seconds == deflated.seconds)
  }

  @Test(
    "On a moderate link, the few batches sent uncompressed as a trial cost little",
    arguments: [20e6, 50e6, 65e6])
  func moderateLink(link: Double) {
    let chosen = Self.run(deflating: 100e6, link: link, batches: 1000)
    let deflated = Self.run(deflating: 100e6, link: link, batches: 1000, always: true)
    #expect(chosen.seconds <= deflated.seconds * 1.02 && chosen.bytes > deflated.bytes)
  }

  @Test("Where both sides share their processors, uncompressed batches are found to be faster")
  func sharedProcessors() {
    let chosen = Self.run(deflating: 100e6, link: 1e9, batches: 200, sharing: true)
    let plain = Self.run(deflating: 100e6, link: 1e9, batches: 200, always: false, sharing: true)
    #expect(chosen.seconds <= plain.seconds * 1.02)
  }

  @Test("Occasional delays by the receiver's disk do not decide how other batches are sent")
  func heldUp() {
    var choice = CompressionChoice()
    var deflated = 0
    for batch in 0..<200 {
      let deflates = choice.deflates(Self.payload)
      deflated += deflates ? 1 : 0
      // One in four takes three times as long.
      let time: UInt64 = (deflates ? 10_000_000 : 8_000_000) * (batch % 4 == 3 ? 3 : 1)
      choice.acknowledged(
        CompressionChoice.Measure(
          payload: Self.payload, encrypted: deflates ? Self.payload * 6 / 10 : Self.payload,
          deflateTime: deflates ? 6_000_000 : nil, transferTime: time))
    }
    #expect(deflated <= 4)
  }

  @Test("A trial is not abandoned because of one delayed batch, nor while it is faster than compressing")
  func heldUpOnce() {
    for stall in 2..<12 {
      var choice = CompressionChoice()
      for batch in 0..<40 {
        let deflates = choice.deflates(Self.payload)
        if batch > 4 { #expect(!deflates) }
        // The first ones are compressed while the receiver is otherwise idle.
        let time: UInt64 = batch == stall ? 400_000_000 : deflates ? 7_000_000 : 8_000_000
        choice.acknowledged(
          CompressionChoice.Measure(
            payload: Self.payload, encrypted: deflates ? Self.payload * 6 / 10 : Self.payload,
            deflateTime: deflates ? 20_000_000 : nil, transferTime: time))
      }
    }
  }

  @Test("A link that becomes slow gets compressed batches again")
  func slowerLink() {
    var choice = CompressionChoice()
    func acknowledge(deflating: UInt64?, _ passing: UInt64) {
      choice.acknowledged(
        CompressionChoice.Measure(
          payload: Self.payload, encrypted: deflating == nil ? Self.payload : Self.payload / 2,
          deflateTime: deflating, transferTime: passing))
    }
    #expect(choice.deflates(Self.payload))
    acknowledge(deflating: 10_000_000, 10_500_000)
    #expect(!choice.deflates(Self.payload))
    for _ in 0..<10 { acknowledge(deflating: nil, 2_000_000) }
    #expect(!choice.deflates(Self.payload))
    for _ in 0..<10 { acknowledge(deflating: nil, 100_000_000) }
    #expect(choice.deflates(Self.payload))
  }

  @Test("Small batches are always compressed, and are not measured")
  func smallBatches() {
    var choice = CompressionChoice()
    choice.acknowledged(
      CompressionChoice.Measure(
        payload: 1000, encrypted: 700, deflateTime: 1_000_000, transferTime: 1_000_001))
    #expect(choice == CompressionChoice() && choice.deflates(1000))
  }
}

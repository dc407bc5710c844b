import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// The money that a relay costs: prices, usage, and their arithmetic.
@Suite struct RelayPricesTests {
  private let prices = RelayPrices("EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023")

  @Test func `prices are a currency and named numbers, in any order`() throws {
    let prices = try #require(prices)
    #expect(prices.currency == "EUR" && prices.writes == 0.005 && prices.reads == 0.0004)
    #expect(prices.out == 0.09 && prices.stored == 0.023)
    #expect(prices.description == "EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023")
    #expect(RelayPrices(" $  stored=6  out=0.0 ")?.description == "$ writes=0.0 reads=0.0 out=0.0 stored=6.0")
    for price in [0, 0.000_000_4, 0.00001, 0.1, 1, 123.456, 999_999_999] {
      var prices = RelayPrices(currency: "EUR")
      prices.reads = price
      #expect(RelayPrices(prices.description) == prices, "\(prices)")
    }
  }

  @Test(arguments: [
    "", " ", "EUR", "writes=1", "EUR writes", "EUR writes=", "EUR writes=-1", "EUR writes=1e3",
    "EUR writes=.5",
    "EUR writes=5.", "EUR writes=0x1", "EUR writes=nan", "EUR writes=1,5", "EUR puts=1", "EUR writes=1=2",
    "EUR writes=1 writes=2", "EUR writes=1000000001", "E\u{7}R writes=1", "EUR Writes=1",
    "EUR writes=\(String(repeating: "1", count: 200))",
  ])
  func `what is no price table is refused`(text: String) { #expect(RelayPrices(text) == nil) }

  @Test func `requests are billed for each thousand, what is read and stored for each GiB`() throws {
    let prices = try #require(prices)
    #expect(prices.cost(of: RelayUsage()) == 0 && prices.monthlyCost(ofStored: 0) == 0)
    var figures = ObjectStoreFigures()
    // Refused, repeated and unchanged answers are requests, too.
    for status in [200, 412, 503] { for _ in 0..<1000 { figures.count(.put, status: status, sent: 10) } }
    for _ in 0..<1000 { figures.count(.list, status: 200) }
    for status in [200, 304] { for _ in 0..<5000 { figures.count(.get, status: status) } }
    for _ in 0..<500 { figures.count(.delete, status: 204) }
    figures.count(.get, status: 200, received: 2 << 30)
    var usage = RelayUsage()
    usage.add(ObjectStoreFigures(), at: 3)
    #expect(usage == RelayUsage())
    usage.add(figures, at: 5)
    #expect(usage.since == 5 && usage.writes == 4000 && usage.reads == 10_001 && usage.deletions == 500)
    #expect(usage.sentBytes == 30_000 && usage.receivedBytes == 2 << 30)
    let expected = 4 * 0.005 + 10.001 * 0.0004 + 2 * 0.09
    #expect(abs(prices.cost(of: usage) - expected) < 1e-12)
    #expect(abs(prices.monthlyCost(ofStored: 3 << 29) - 1.5 * 0.023) < 1e-12)
    let sum = usage.adding(figures, at: 9)
    #expect(sum.since == 5 && sum.writes == 8000 && sum.receivedBytes == 4 << 30)
  }

  @Test func `prices are kept with the relay, and a record without them is read`() throws {
    var relay = try RelayDescription(name: "fleet", location: "s3://fleet/vessels")
    let before = relay.bytes
    #expect(try RelayDescription(name: "fleet", bytes: before) == relay)
    #expect(try RelayDescription(name: "fleet", bytes: before.dropLast()) == relay, "an older record")
    relay.prices = prices
    relay.endpoint = "https://storage.example.net"
    #expect(try RelayDescription(name: "fleet", bytes: relay.bytes) == relay)
    #expect(try RelayDescription(name: "fleet", bytes: relay.bytes + [7]) == relay)
  }
}

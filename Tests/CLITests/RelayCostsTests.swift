import Replication
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// Requests to a relay, and money, as they are shown.
@Suite struct RelayCostsTests {
  private static let since: UInt64 = 1_782_864_000_000
  private let prices = RelayPrices("EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023")
  private let usage: RelayUsage = {
    var figures = ObjectStoreFigures()
    for _ in 0..<2500 { figures.count(.put, status: 200, sent: 1 << 10) }
    for _ in 0..<100_000 { figures.count(.get, status: 304) }
    figures.count(.get, status: 200, received: 3 << 30)
    figures.count(.delete, status: 204)
    var usage = RelayUsage()
    usage.add(figures, at: Self.since)
    return usage
  }()

  @Test func `requests and money stand in two lines, and without prices the money is left out`() {
    let requests =
      "since \(Text.date(milliseconds: Self.since)): 2500 writes and listings, 100001 reads, 1 deletion;"
      + " 2.4 MiB written, 3.0 GiB read"
    let money = "requests and bytes read cost 0.3225 EUR so far"
    let lines = { (prices: RelayPrices?, stored: UInt64?) in
      RelayCosts(usage: usage, prices: prices, storedBytes: stored).lines
    }
    #expect(lines(prices, 10 << 30) == [requests, money + "; what is stored costs 0.2300 EUR a month"])
    #expect(lines(prices, nil) == [requests, money])
    #expect(lines(nil, 10 << 30) == [requests])
    #expect(RelayCosts(usage: RelayUsage(), prices: prices, storedBytes: 1).lines.isEmpty)
  }

  @Test func `the money in JSON is declared, with the month where the size is known`() throws {
    let line = JSONLine("costs", [JSONReference.relayUsage, JSONReference.relayCost])
    func paths(_ costs: RelayCosts) throws -> [String] {
      try line.match(JSON.object([]).with("usage", costs.usageJSON).with("cost", costs.costJSON)).get()
    }
    let all = try paths(RelayCosts(usage: usage, prices: prices, storedBytes: 1 << 30))
    #expect(all.count == line.paths.count)
    let unknown = try paths(RelayCosts(usage: RelayUsage(), prices: prices, storedBytes: nil))
    #expect(unknown.contains("cost.requests") && !unknown.contains("cost.month"))
    #expect(try paths(RelayCosts(usage: RelayUsage(), prices: nil, storedBytes: 1)).isEmpty)
  }

  @Test(
    arguments: [
      (0, "0.0000"), (0.000_001, "below 0.0001"), (0.00006, "0.0001"), (0.32, "0.3200"), (0.99996, "1.0000"),
      (1, "1.00"), (12.346, "12.35"), (1234.5, "1234.50"), (-1, "0.0000"),
    ] as [(Double, String)])
  func `an amount has as many digits as it is worth`(value: Double, text: String) {
    #expect(Text.amount(value) == text)
  }
}

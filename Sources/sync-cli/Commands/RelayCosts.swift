import Replication

/// Requests to a relay so far, and money.
struct RelayCosts {
  let usage: RelayUsage
  let prices: RelayPrices?
  /// Bytes of all objects there; nil if that is not known.
  let storedBytes: UInt64?

  init(usage: RelayUsage, prices: RelayPrices?, storedBytes: UInt64?) {
    (self.usage, self.prices, self.storedBytes) = (usage, prices, storedBytes)
  }

  init(_ status: RelayStatus) {
    (usage, prices, storedBytes) = (status.usage, status.prices, status.total.bytes)
  }

  init(_ state: RelayState) {
    (usage, prices, storedBytes) = (state.billing.usage, state.billing.prices, state.collections.storedBytes)
  }

  /// As text.
  var lines: [String] {
    guard let since = usage.since else { return [] }
    let requests =
      "since \(Text.date(milliseconds: since)): \(Text.count(usage.writes, noun: "write")) and listings,"
      + " \(Text.count(usage.reads, noun: "read")), \(Text.count(usage.deletions, noun: "deletion"));"
      + " \(Text.size(usage.sentBytes)) written, \(Text.size(usage.receivedBytes)) read"
    guard let prices else { return [requests] }
    let stored = storedBytes.map {
      "; what is stored costs \(Text.amount(prices.monthlyCost(ofStored: $0))) \(prices.currency) a month"
    }
    let money = "\(Text.amount(prices.cost(of: usage))) \(prices.currency)"
    return [requests, "requests and bytes read cost \(money) so far\(stored ?? "")"]
  }

  /// The requests; nil if none was counted.
  var usageJSON: JSON? {
    usage.since.map {
      [
        "since_ms": .integer($0), "writes": .integer(usage.writes), "reads": .integer(usage.reads),
        "deletions": .integer(usage.deletions), "sent_bytes": .integer(usage.sentBytes),
        "received_bytes": .integer(usage.receivedBytes),
      ]
    }
  }

  /// The money; nil if the prices are not known.
  var costJSON: JSON? {
    guard let prices else { return nil }
    let json: JSON = ["currency": .string(prices.currency), "requests": .real(prices.cost(of: usage))]
    return json.with("month", storedBytes.map { .real(prices.monthlyCost(ofStored: $0)) })
  }
}

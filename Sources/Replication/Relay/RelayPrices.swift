internal import SyncStore

/// Prices of a bucket, as its provider states them. None are built in: they differ between providers, and
/// change.
///
/// ```swift
/// var relay = try RelayDescription(name: "fleet", location: "s3://fleet/vessels")
/// relay.prices = RelayPrices("EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023")
/// ```
public struct RelayPrices: Hashable, Sendable {
  /// The word after an amount: `EUR`, `$`.
  public var currency: String
  /// For 1,000 writes and listings, and for 1,000 reads. Deletions are free everywhere.
  public var writes = 0.0, reads = 0.0
  /// For each GiB that is read.
  public var out = 0.0
  /// For each GiB that is stored for a month.
  public var stored = 0.0

  /// The highest price.
  public static let maximum = 1e9
  /// The most bytes of the text.
  static let maximumBytes = 200
  /// Bytes of a GiB.
  private static let unit = 1_073_741_824.0

  /// Prices in this currency, all of them 0.
  public init(currency: String) { self.currency = currency }

  /// The money for requests and bytes that were read.
  public func cost(of usage: RelayUsage) -> Double {
    Double(usage.writes) / 1000 * writes + Double(usage.reads) / 1000 * reads
      + Double(usage.receivedBytes) / Self.unit * out
  }

  /// The money for so many stored bytes, each month.
  public func monthlyCost(ofStored bytes: UInt64) -> Double { Double(bytes) / Self.unit * stored }
}

// MARK: Text

extension RelayPrices: LosslessStringConvertible {
  /// The prices by their names, in the order of the text.
  private static let parts: [(name: String, price: any WritableKeyPath<RelayPrices, Double> & Sendable)] = [
    ("writes", \.writes), ("reads", \.reads), ("out", \.out), ("stored", \.stored),
  ]

  /// Parses `EUR writes=0.005 reads=0.0004 out=0.09 stored=0.023`: the currency, then prices in any order;
  /// what is not named costs nothing. Nil for another text.
  public init?(_ text: String) {
    guard text.utf8.count <= Self.maximumBytes else { return nil }
    let words = text.utf8.split(separator: UInt8(ascii: " ")).map { String(Substring($0)) }
    guard let currency = words.first, currency.utf8.count <= 16, !currency.utf8.contains(UInt8(ascii: "=")),
      currency == currency.printable
    else { return nil }
    self.init(currency: currency)
    var named = StringSet()
    for word in words.dropFirst() {
      let sides = word.utf8.split(separator: UInt8(ascii: "="), omittingEmptySubsequences: false)
        .map { String(Substring($0)) }
      guard sides.count == 2, let part = Self.parts.first(where: { $0.name == sides[0] }),
        let price = Self.price(sides[1]), !named.contains(part.name)
      else { return nil }
      named.insert(part.name)
      self[keyPath: part.price] = price
    }
    guard !named.isEmpty else { return nil }
  }

  /// A number of digits with at most one point; nil for another text.
  private static func price(_ text: String) -> Double? {
    let isNumber = text.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == 0x2E }
    guard isNumber, text.utf8.first != 0x2E, text.utf8.last != 0x2E, let price = Double(text),
      price <= maximum
    else { return nil }
    return price
  }

  /// The text that is parsed to these prices.
  public var description: String {
    ([currency] + Self.parts.map { "\($0.name)=\(Self.text(self[keyPath: $0.price]))" })
      .joined(separator: " ")
  }

  /// A price without an exponent.
  private static func text(_ price: Double) -> String {
    let plain = "\(price)"
    guard plain.utf8.contains(where: { $0 == 0x65 || $0 == 0x45 }) else { return plain }
    return price >= 1 ? "\(UInt64(price)).0" : small(price)
  }

  /// A price below 0.0001 with twelve digits after the point.
  private static func small(_ price: Double) -> String {
    let digits = "\(UInt64((price * 1e12).rounded()))"
    return "0." + String(repeating: "0", count: max(0, 12 - digits.utf8.count)) + digits
  }
}

/// Requests that this copy has sent to a relay, and bytes of objects moved. Repeated requests count each.
public struct RelayUsage: Hashable, Sendable {
  /// Since when they are counted, in milliseconds since 1970; nil if nothing was counted.
  public internal(set) var since: UInt64?
  /// Writes and listings, which are billed alike; reads; deletions.
  public internal(set) var writes: UInt64 = 0, reads: UInt64 = 0, deletions: UInt64 = 0
  /// Bytes written and read.
  public internal(set) var sentBytes: UInt64 = 0, receivedBytes: UInt64 = 0

  /// Nothing yet.
  public init() {}

  /// Adds what was counted up to `now`.
  package mutating func add(_ figures: ObjectStoreFigures, at now: UInt64) {
    guard figures != ObjectStoreFigures() else { return }
    since = since ?? now
    writes += figures[.put] + figures[.list]
    reads += figures[.get]
    deletions += figures[.delete]
    sentBytes += figures.sentBytes
    receivedBytes += figures.receivedBytes
  }

  /// These, and what was counted up to `now`.
  func adding(_ figures: ObjectStoreFigures, at now: UInt64) -> RelayUsage {
    var sum = self
    sum.add(figures, at: now)
    return sum
  }
}

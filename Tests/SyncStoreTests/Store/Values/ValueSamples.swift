import SyncTestSupport

/// Types that services store, and random values of them.
struct Address: Codable, Hashable {
  var street: String
  var lines: [String]
  var coordinates: [Double]?
}

enum Payment: Codable, Hashable {
  case cash
  case card(number: String, month: Int)
  case transfer([UInt8])
}

enum Level: String, Codable, Hashable, CaseIterable { case low, middle, high }

class Animal: Codable {
  var name: String
  init(name: String) { self.name = name }
}

/// Encodes the properties of its superclass alongside its own, as many programs do.
final class Dog: Animal {
  var age: Int
  enum Keys: String, CodingKey { case age, tricks }
  var tricks: [String]

  init(name: String, age: Int, tricks: [String]) {
    (self.age, self.tricks) = (age, tricks)
    super.init(name: name)
  }
  required init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    age = try container.decode(Int.self, forKey: .age)
    tricks = try container.decode([String].self, forKey: .tricks)
    try super.init(from: try container.superDecoder())
  }
  override func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try super.encode(to: container.superEncoder())
    try container.encode(age, forKey: .age)
    try container.encode(tricks, forKey: .tricks)
  }
}

/// Writes alternately to two containers, which are consecutive in the bytes.
struct Interleaved: Codable, Hashable {
  var left: [Int]
  var right: [String: Int]
  enum Keys: String, CodingKey { case left, right, more }
  struct Name: CodingKey {
    var stringValue: String
    var intValue: Int? { nil }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
  }

  init(left: [Int], right: [String: Int]) { (self.left, self.right) = (left, right) }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    var first = container.nestedUnkeyedContainer(forKey: .left)
    var second = container.nestedContainer(keyedBy: Name.self, forKey: .right)
    var names = right.keys.sorted()[...]
    for number in left {
      try first.encode(number)
      if let name = names.popFirst() { try second.encode(right[name], forKey: Name(stringValue: name)) }
    }
    try container.encode("end", forKey: .more)
    for name in names { try second.encode(right[name], forKey: Name(stringValue: name)) }
  }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    var first = try container.nestedUnkeyedContainer(forKey: .left)
    let second = try container.nestedContainer(keyedBy: Name.self, forKey: .right)
    (left, right) = ([], [:])
    while !first.isAtEnd { left.append(try first.decode(Int.self)) }
    for name in second.allKeys { right[name.stringValue] = try second.decode(Int.self, forKey: name) }
    guard try container.decode(String.self, forKey: .more) == "end" else {
      throw DecodingError.dataCorruptedError(forKey: .more, in: container, debugDescription: "no end")
    }
  }
}

struct Everything: Codable, Hashable {
  var truth: Bool
  var small: Int8
  var wide: Int64
  var unsigned: UInt64
  var number: Double
  var single: Float
  var text: String
  var bytes: [UInt8]
  var maybe: Int?
  var address: Address
  var more: [Address]
  var payment: Payment
  var level: Level
  var names: [String: Int]
  var byNumber: [Int: String]
  var deep: [[Int?]]
  var interleaved: Interleaved

  init(_ random: inout SplitMix64) {
    func below(_ bound: UInt64) -> Int { Int(random.next() % bound) }
    func bits() -> UInt64 { random.next() >> (random.next() % 64) }
    func text() -> String {
      String(
        String.UnicodeScalarView(
          (0..<below(20)).compactMap { _ in
            Unicode.Scalar(UInt32(random.next() % (random.chance(50) ? 128 : 0x11_0000)))
          }))
    }
    func double() -> Double {
      let number = Double(bitPattern: random.next())
      return number.isNaN ? 0.5 : number
    }
    func address() -> Address {
      Address(
        street: text(), lines: (0..<below(4)).map { _ in text() },
        coordinates: random.chance(50) ? nil : (0..<below(30)).map { _ in double() })
    }
    truth = random.chance(50)
    small = Int8(truncatingIfNeeded: random.next())
    wide = Int64(bitPattern: bits()) &* (random.chance(50) ? 1 : -1)
    unsigned = bits()
    number = double()
    single = Float(below(1000)) / 7
    self.text = text()
    bytes = random.bytes(below(random.chance(10) ? 70_000 : 40))
    maybe = random.chance(50) ? nil : below(1 << 40)
    self.address = address()
    more = (0..<below(30)).map { _ in address() }
    payment =
      switch random.next() % 3 {
      case 0: .cash
      case 1: .card(number: text(), month: below(12))
      default: .transfer(random.bytes(below(9)))
      }
    level = Level.allCases[below(3)]
    names = Dictionary((0..<below(40)).map { _ in (text(), below(300)) }, uniquingKeysWith: { $1 })
    byNumber = Dictionary((0..<below(5)).map { (below(300) - 150 * $0, text()) }, uniquingKeysWith: { $1 })
    deep = (0..<below(4)).map { _ in (0..<below(30)).map { _ in random.chance(20) ? nil : below(70_000) } }
    interleaved = Interleaved(
      left: (0..<below(30)).map { $0 * 100 },
      right: Dictionary((0..<below(40)).map { ("n\($0)", $0) }, uniquingKeysWith: { $1 }))
  }
}

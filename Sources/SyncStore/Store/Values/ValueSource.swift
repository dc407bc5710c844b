/// The bytes of a coded value, for a decoder.
///
/// They are untrusted: `validate` walks all of them once before any other access. Later reads can rely on the
/// structure; the buffer still checks the bounds of each access.
final class ValueSource {
  let bytes: ByteBuffer
  /// Lookup hint: properties are mostly read in the order in which they were written. The object it is valid
  /// for, the offset of the last value read, and the number of keys after it.
  private var hint = (map: -1, value: 0, left: 0)

  init() { bytes = ByteBuffer() }

  convenience init(_ bytes: [UInt8]) {
    self.init()
    fill(bytes.span)
  }

  /// Drops the bytes, and keeps their memory.
  func reset() {
    bytes.truncate(to: 0)
    hint = (-1, 0, 0)
  }

  /// Replaces the bytes by a copy of `span`.
  func fill(_ span: RawSpan) {
    reset()
    bytes.append(span)
  }

  /// Replaces the bytes by a copy of `span`.
  func fill(_ span: Span<UInt8>) {
    reset()
    bytes.append(span)
  }

  // MARK: Validation

  /// Checks that the bytes are exactly one well-formed item.
  func validate(limit: Int = Limits.codedValueBytes) throws(StoreError) {
    guard bytes.count <= limit else {
      throw StoreError(.outOfBounds, "the value takes more than \(limit) bytes: put it in parts, or as bytes")
    }
    let end = try bytes.withSpan(0..<bytes.count) { bytes throws(StoreError) in
      try validate(bytes, 0, depth: 0)
    }
    guard end == bytes.count else { throw malformed("\(bytes.count - end) bytes too many") }
  }

  private func malformed(_ what: String) -> StoreError {
    StoreError(.malformedValue, "the value is not what a coded value is: \(what): write it again")
  }

  /// Validates the item at `start`, and returns its end.
  private func validate(_ bytes: Span<UInt8>, _ start: Int, depth: Int) throws(StoreError) -> Int {
    guard start < bytes.count else { throw malformed("it is cut short") }
    let first = bytes[start]
    let size = Self.argumentSize(first)
    guard size >= 0, first != 0xF8 else { throw malformed("the item \(Hex.string(of: [first]))") }
    guard size <= bytes.count - start - 1 else { throw malformed("it is cut short") }
    let next = start + 1 + size
    let major = first & 0xE0
    if major == CBOR.Major.simple || major <= CBOR.Major.negative { return next }
    var argument = UInt64(first & 0x1F)
    if size > 0 {
      argument = 0
      for place in start + 1..<next { argument = argument << 8 | UInt64(bytes[place]) }
    }
    let left = UInt64(bytes.count - next)
    switch major {
    case CBOR.Major.bytes, CBOR.Major.text:
      guard argument <= left else { throw malformed("it is cut short") }
      return next + Int(argument)
    default:
      guard depth < Limits.codedValueDepth else {
        throw StoreError(
          .outOfBounds, "the value is nested deeper than \(Limits.codedValueDepth) levels: put it in parts")
      }
      // Each item takes at least one byte: a count that the bytes cannot hold is refused.
      let isMap = major == CBOR.Major.map
      guard major == CBOR.Major.tag || argument <= (isMap ? left / 2 : left) else {
        throw malformed("it is cut short")
      }
      let items = major == CBOR.Major.tag ? 1 : Int(argument) * (isMap ? 2 : 1)
      var at = next
      for _ in 0..<items {
        // Most items are short scalars: handled inline.
        let first = at < bytes.count ? bytes[at] : CBOR.Major.simple
        if first < 0x18 {
          at += 1
        } else if first >= CBOR.Major.text, first < CBOR.Major.text + 24, bytes.count - at > Int(first & 0x1F)
        {
          at += 1 + Int(first & 0x1F)
        } else {
          at = try validate(bytes, at, depth: depth + 1)
        }
      }
      return at
    }
  }

  /// Bytes of the argument after an item's first byte; −1 for first bytes outside of the format.
  @inline(__always)
  private static func argumentSize(_ first: UInt8) -> Int {
    let information = first & 0x1F
    return information < 24 ? 0 : information < 28 ? 1 << Int(information - 24) : -1
  }

  /// The head of the item at `at`.
  @inline(__always)
  func head(_ at: Int) -> CBOR.Head {
    let first = bytes[at]
    let information = first & 0x1F
    if information < 24 { return CBOR.Head(first: first, argument: UInt64(information), next: at + 1) }
    switch information {
    case 24: return CBOR.Head(first: first, argument: UInt64(bytes[at + 1]), next: at + 2)
    case 25:
      return CBOR.Head(
        first: first, argument: UInt64(bytes.load(at + 1, as: UInt16.self).byteSwapped), next: at + 3)
    case 26:
      return CBOR.Head(
        first: first, argument: UInt64(bytes.load(at + 1, as: UInt32.self).byteSwapped), next: at + 5)
    default:
      return CBOR.Head(first: first, argument: bytes.load(at + 1, as: UInt64.self).byteSwapped, next: at + 9)
    }
  }

  /// The end of the item at `start`.
  func skip(_ start: Int) -> Int {
    var at = start
    var left = 1
    while left > 0 {
      let head = head(at)
      at = head.next
      left -= 1
      switch head.major {
      case CBOR.Major.bytes, CBOR.Major.text: at += Int(head.argument)
      case CBOR.Major.array: left += Int(head.argument)
      case CBOR.Major.map: left += 2 * Int(head.argument)
      case CBOR.Major.tag: left += 1
      default: break
      }
    }
    return at
  }

  // MARK: Items

  @inline(__always)
  func isNull(at: Int) -> Bool { bytes[at] == CBOR.nullItem }

  @inline(__always)
  func integer<Number: FixedWidthInteger>(at: Int, _: Number.Type) throws -> Number {
    let head = head(at)
    switch head.major {
    case CBOR.Major.unsigned:
      if let number = Number(exactly: head.argument) { return number }
      throw outOfRange("\(head.argument)", wanted: Number.self, at: at)
    case CBOR.Major.negative:
      if head.argument <= UInt64(Int64.max), let number = Number(exactly: -1 - Int64(head.argument)) {
        return number
      }
      throw outOfRange("-1 - \(head.argument)", wanted: Number.self, at: at)
    default: throw mismatch(Number.self, at: at)
    }
  }

  @inline(__always)
  func bool(at: Int) throws -> Bool {
    switch bytes[at] {
    case CBOR.falseItem: return false
    case CBOR.trueItem: return true
    default: throw mismatch(Bool.self, at: at)
    }
  }

  @inline(__always)
  func double(at: Int) throws -> Double {
    let head = head(at)
    switch head.first {
    case CBOR.double: return Double(bitPattern: head.argument)
    case CBOR.single: return Double(Float(bitPattern: UInt32(head.argument)))
    case CBOR.half: return Double(Self.float(half: UInt16(head.argument)))
    default: throw mismatch(Double.self, at: at)
    }
  }

  @inline(__always)
  func float(at: Int) throws -> Float {
    let head = head(at)
    switch head.first {
    case CBOR.single: return Float(bitPattern: UInt32(head.argument))
    case CBOR.half: return Self.float(half: UInt16(head.argument))
    case CBOR.double:
      let number = Double(bitPattern: head.argument)
      if let float = Float(exactly: number) { return float }
      if number.isNaN { return .nan }
      throw outOfRange("\(number)", wanted: Float.self, at: at)
    default: throw mismatch(Float.self, at: at)
    }
  }

  /// A 16-bit number (IEEE 754 binary16) as other programs may write; not all processors have such a type.
  private static func float(half bits: UInt16) -> Float {
    let (exponent, fraction) = (Int(bits >> 10) & 31, Float(bits & 0x3FF))
    let magnitude: Float =
      switch exponent {
      case 0: fraction / 16_777_216
      case 31: fraction == 0 ? .infinity : .nan
      default: (1 + fraction / 1024) * Float(sign: .plus, exponent: exponent - 15, significand: 1)
      }
    return bits >> 15 == 1 ? -magnitude : magnitude
  }

  @inline(__always)
  func text(at: Int) throws -> String {
    let head = head(at)
    guard head.major == CBOR.Major.text else { throw mismatch(String.self, at: at) }
    guard let text = bytes.text(head.next..<(head.next + Int(head.argument))) else {
      throw corrupted(at: at, code: .malformedValue, what: "is text that is not UTF-8")
    }
    return text
  }

  /// A byte string, also one stored as an array of integers.
  func byteString(at: Int) throws -> [UInt8] {
    let head = head(at)
    switch head.major {
    case CBOR.Major.bytes: return bytes.bytes(head.next..<(head.next + Int(head.argument)))
    case CBOR.Major.array: return try elements(at: at) { try integer(at: $0, UInt8.self) }
    default: throw mismatch([UInt8].self, at: at)
    }
  }

  /// All elements of an array. No capacity is reserved: an element may take more memory than the byte it is
  /// made of.
  @inline(__always)
  func elements<Element>(at: Int, _ read: (Int) throws -> Element) throws -> [Element] {
    let head = head(at)
    guard head.major == CBOR.Major.array else { throw mismatch([Element].self, at: at) }
    var elements: [Element] = []
    var place = head.next
    for _ in 0..<Int(head.argument) {
      elements.append(try read(place))
      place = skip(place)
    }
    return elements
  }

  /// The item; nil for other kinds.
  func item(at: Int) throws -> ValueItem? {
    let head = head(at)
    guard head.major == CBOR.Major.tag else {
      return head.major == CBOR.Major.bytes || head.major == CBOR.Major.array
        ? .bytes(try byteString(at: at)) : nil
    }
    switch head.argument {
    case CBOR.epochTime:
      switch self.head(head.next).major {
      case CBOR.Major.unsigned, CBOR.Major.negative:
        return .instant(secondsSince1970: try integer(at: head.next, Int64.self), nanoseconds: 0)
      default: return .time(secondsSince1970: try double(at: head.next))
      }
    case CBOR.extendedTime: return try instant(at: head.next)
    case CBOR.uuid:
      let content = self.head(head.next)
      guard content.major == CBOR.Major.bytes, content.argument == 16 else { return nil }
      return .uuid(
        bytes.load(content.next, as: UInt64.self).byteSwapped,
        bytes.load(content.next + 8, as: UInt64.self).byteSwapped)
    default: return nil
    }
  }

  private func instant(at: Int) throws -> ValueItem? {
    let map = head(at)
    guard map.major == CBOR.Major.map, map.argument == 2 else { return nil }
    let second = skip(map.next)
    let secondKey = skip(second)
    guard head(map.next).first == CBOR.Major.unsigned | UInt8(CBOR.secondsKey),
      head(secondKey).first == CBOR.Major.negative | UInt8(CBOR.nanosecondsKey)
    else { return nil }
    let nanoseconds = try integer(at: skip(secondKey), UInt32.self)
    guard UInt64(nanoseconds) < CBOR.nanosecondsPerSecond else { return nil }
    return .instant(secondsSince1970: try integer(at: second, Int64.self), nanoseconds: nanoseconds)
  }

  // MARK: Objects

  /// The offset of a key's value; nil if the object has no such key.
  @inline(__always)
  func lookUp(_ key: String, in map: Int, body: Int, count: Int) -> Int? {
    if hint.map == map {
      if hint.left > 0 {
        let at = skip(hint.value)
        if let value = value(at, of: key) {
          hint = (map, value, hint.left - 1)
          return value
        }
      }
    } else if count > 0, let value = value(body, of: key) {
      hint = (map, value, count - 1)
      return value
    }
    return search(key, in: map, body: body, count: count)
  }

  @inline(never)
  private func search(_ key: String, in map: Int, body: Int, count: Int) -> Int? {
    var at = body
    for index in 0..<count {
      if let value = value(at, of: key) {
        hint = (map, value, count - index - 1)
        return value
      }
      at = skip(skip(at))
    }
    return nil
  }

  /// The offset of the value of the key at `at`, if that is `key`.
  @inline(__always)
  private func value(_ at: Int, of key: String) -> Int? {
    let head = head(at)
    guard head.major == CBOR.Major.text, bytes.holds(key, at: head.next, length: Int(head.argument)) else {
      return nil
    }
    return head.next + Int(head.argument)
  }

  /// Saves the hint while a nested value is read, which may change it.
  @inline(__always)
  func restore<Result>(_ body: () throws -> Result) rethrows -> Result {
    let saved = hint
    defer { hint = saved }
    return try body()
  }

  /// The text keys of an object.
  func keys(body: Int, count: Int) -> [String] {
    var keys: [String] = []
    var at = body
    for _ in 0..<count {
      if let key = try? text(at: at) { keys.append(key) }
      at = skip(skip(at))
    }
    return keys
  }
}

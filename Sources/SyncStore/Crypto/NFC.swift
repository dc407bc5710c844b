/// Normalization Form C (UAX #15) of a text in UTF-8.
///
/// A passphrase thereby gives the same bytes on every keyboard, system and editor. The standard library has
/// it only as a private interface, and the libraries do without Foundation.
///
/// Works in arrays that it zeroes, because the text is secret.
enum NFC {
  private struct Tables {
    /// One or two scalars each; the second is 0 if there is one.
    var decompositions: [UInt32: (UInt32, UInt32)] = [:]
    var compositions: [UInt64: UInt32] = [:]
    var classes: [(range: ClosedRange<UInt32>, number: UInt8)] = []

    init() {
      for word in NFCTable.decompositions.utf8.split(separator: UInt8(ascii: " ")) {
        let numbers = word.split { !NFC.isDigit($0) }.compactMap { NFC.number($0, radix: 16) }
        let (first, second) = (numbers[1], numbers.count > 2 ? numbers[2] : 0)
        decompositions[numbers[0]] = (first, second)
        if word.contains(UInt8(ascii: "=")) { compositions[NFC.pair(first, second)] = numbers[0] }
      }
      for word in NFCTable.classes.utf8.split(separator: UInt8(ascii: " ")) {
        let parts = word.split(separator: UInt8(ascii: ":"))
        let ends = parts[0].split(separator: UInt8(ascii: "-")).compactMap { NFC.number($0, radix: 16) }
        guard let first = ends.first, let last = ends.last, let number = NFC.number(parts[1], radix: 10)
        else { continue }
        classes.append((first...last, UInt8(truncatingIfNeeded: number)))
      }
    }

    /// The canonical combining class.
    func combiningClass(_ scalar: UInt32) -> UInt8 {
      // Below the first combining mark.
      guard scalar >= 0x300 else { return 0 }
      var (low, high) = (0, classes.count)
      while low < high {
        let middle = (low + high) / 2
        if classes[middle].range.upperBound < scalar { low = middle + 1 } else { high = middle }
      }
      return low < classes.count && classes[low].range.contains(scalar) ? classes[low].number : 0
    }
  }

  private static let tables = Tables()

  private static func isDigit(_ byte: UInt8) -> Bool {
    (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte)
  }

  private static func number(_ digits: Substring.UTF8View, radix: Int) -> UInt32? {
    UInt32(String(Substring(digits)), radix: radix)
  }

  private static func pair(_ first: UInt32, _ second: UInt32) -> UInt64 {
    UInt64(first) << 32 | UInt64(second)
  }

  /// `bytes` in Normalization Form C; nil if they are not UTF-8.
  static func normalized(_ bytes: [UInt8]) -> [UInt8]? {
    guard var scalars = scalars(of: bytes) else { return nil }
    // Text below the combining marks is already in this form.
    guard scalars.contains(where: { $0 >= 0x300 }) else { return bytes }
    var apart: [UInt32] = []
    // Reserved in full: a reallocation would leave a copy that is not zeroed. No scalar decomposes into more
    // than four.
    apart.reserveCapacity(scalars.count * 4)
    for scalar in scalars { decompose(scalar, into: &apart) }
    order(&apart)
    compose(&apart)
    defer {
      for index in scalars.indices { scalars[index] = 0 }
      for index in apart.indices { apart[index] = 0 }
    }
    var result: [UInt8] = []
    result.reserveCapacity(apart.count * 4)
    for scalar in apart { encode(scalar, into: &result) }
    return result
  }

  private static func scalars(of bytes: [UInt8]) -> [UInt32]? {
    guard let text = try? UTF8Span(validating: bytes.span) else { return nil }
    var scalars: [UInt32] = []
    scalars.reserveCapacity(bytes.count)
    var iterator = text.makeUnicodeScalarIterator()
    while let scalar = iterator.next() { scalars.append(scalar.value) }
    return scalars
  }

  private static func encode(_ scalar: UInt32, into bytes: inout [UInt8]) {
    func tail(_ shift: UInt32) -> UInt8 { UInt8(scalar >> shift & 0x3F | 0x80) }
    switch scalar {
    case ..<0x80: bytes.append(UInt8(scalar))
    case ..<0x800: bytes += [UInt8(scalar >> 6 | 0xC0), tail(0)]
    case ..<0x10000: bytes += [UInt8(scalar >> 12 | 0xE0), tail(6), tail(0)]
    default: bytes += [UInt8(scalar >> 18 | 0xF0), tail(12), tail(6), tail(0)]
    }
  }

  // MARK: Decomposition and composition

  private enum Hangul {
    static let (syllables, leads, vowels, trails): (UInt32, UInt32, UInt32, UInt32) = (
      0xAC00, 0x1100, 0x1161, 0x11A7
    )
    static let (leadCount, vowelCount, trailCount): (UInt32, UInt32, UInt32) = (19, 21, 28)
    static let count = leadCount * vowelCount * trailCount
  }

  private static func decompose(_ scalar: UInt32, into scalars: inout [UInt32]) {
    if scalar >= Hangul.syllables, scalar - Hangul.syllables < Hangul.count {
      let index = scalar - Hangul.syllables
      scalars.append(Hangul.leads + index / (Hangul.vowelCount * Hangul.trailCount))
      scalars.append(Hangul.vowels + index / Hangul.trailCount % Hangul.vowelCount)
      if index % Hangul.trailCount > 0 { scalars.append(Hangul.trails + index % Hangul.trailCount) }
    } else if let (first, second) = tables.decompositions[scalar] {
      decompose(first, into: &scalars)
      if second > 0 { decompose(second, into: &scalars) }
    } else {
      scalars.append(scalar)
    }
  }

  /// Canonical ordering: a stable sort of adjacent marks by class.
  private static func order(_ scalars: inout [UInt32]) {
    for index in scalars.indices.dropFirst() {
      let own = tables.combiningClass(scalars[index])
      var place = index
      while own > 0, place > 0, tables.combiningClass(scalars[place - 1]) > own {
        scalars.swapAt(place, place - 1)
        place -= 1
      }
    }
  }

  /// Composes each mark with the last starter before it, unless a mark of the same or a greater class blocks
  /// it.
  private static func compose(_ scalars: inout [UInt32]) {
    var (starter, end, last) = (Int?.none, 0, UInt8(0))
    for index in scalars.indices {
      let scalar = scalars[index]
      let own = tables.combiningClass(scalar)
      // A preceding class of 0 is the starter itself.
      if let starter, last < own || last == 0, let both = composed(scalars[starter], scalar) {
        scalars[starter] = both
        continue
      }
      scalars[end] = scalar
      if own == 0 { starter = end }
      last = own
      end += 1
    }
    for index in end..<scalars.count { scalars[index] = 0 }
    scalars.removeLast(scalars.count - end)
  }

  private static func composed(_ first: UInt32, _ second: UInt32) -> UInt32? {
    let (lead, vowel) = (first &- Hangul.leads, second &- Hangul.vowels)
    if lead < Hangul.leadCount, vowel < Hangul.vowelCount {
      return Hangul.syllables + (lead * Hangul.vowelCount + vowel) * Hangul.trailCount
    }
    let (syllable, trail) = (first &- Hangul.syllables, second &- Hangul.trails)
    if syllable < Hangul.count, syllable % Hangul.trailCount == 0, trail > 0, trail < Hangul.trailCount {
      return first + trail
    }
    return tables.compositions[pair(first, second)]
  }
}

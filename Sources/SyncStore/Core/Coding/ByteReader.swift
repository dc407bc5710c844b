/// Why bytes could not be decoded.
package struct DecodingFailure: Error, Equatable, CustomStringConvertible {
  /// The reason, for a log line.
  package let description: String

  /// A failure that says `description`.
  package init(_ description: String) { self.description = description }
}

/// Decodes fields from untrusted bytes: every length is checked before anything is allocated (F46, F78).
package struct ByteReader {
  private let bytes: ArraySlice<UInt8>
  private var index: Int

  /// Reads `bytes` from their start.
  package init(_ bytes: ArraySlice<UInt8>) {
    self.bytes = bytes
    index = bytes.startIndex
  }

  /// Reads `bytes` from their start.
  package init(_ bytes: [UInt8]) { self.init(bytes[...]) }

  /// Number of bytes left.
  package var remaining: Int { bytes.endIndex - index }

  /// Reads an integer in its own width, little-endian.
  package mutating func read<Integer: FixedWidthInteger>(_: Integer.Type = Integer.self)
    throws(DecodingFailure) -> Integer
  {
    let slice = try read(raw: Integer.bitWidth / 8)
    var value: Integer = 0
    for byte in slice.reversed() {
      value = (Integer.bitWidth > 8 ? value << 8 : 0) | Integer(truncatingIfNeeded: byte)
    }
    return value
  }

  /// An unsigned LEB128 integer of at most 64 bits, in its shortest form.
  package mutating func readVariable() throws(DecodingFailure) -> UInt64 {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 70, by: 7) {
      let byte = try read(UInt8.self)
      guard shift < 63 || byte <= 1 else { throw DecodingFailure("integer above 64 bits") }
      value |= UInt64(byte & 0x7F) << shift
      if byte & 0x80 == 0 {
        guard byte != 0 || shift == 0 else { throw DecodingFailure("integer not in its shortest form") }
        return value
      }
    }
    throw DecodingFailure("integer above 64 bits")
  }

  /// A count (LEB128) of at most `limit`.
  package mutating func readCount(limit: Int) throws(DecodingFailure) -> Int {
    let count = try readVariable()
    guard count <= UInt64(limit) else { throw DecodingFailure("count \(count) above the limit \(limit)") }
    return Int(count)
  }

  /// Exactly `count` bytes.
  package mutating func read(raw count: Int) throws(DecodingFailure) -> ArraySlice<UInt8> {
    guard count >= 0, count <= remaining else {
      throw DecodingFailure("\(CountText.of(count, noun: "byte")) wanted, \(remaining) left")
    }
    defer { index += count }
    return bytes[index..<(index + count)]
  }

  /// A count, then that many bytes, at most `limit`.
  package mutating func readCounted(limit: Int) throws(DecodingFailure) -> [UInt8] {
    Array(try read(raw: try readCount(limit: limit)))
  }

  /// UTF-8 text of at most `limit` bytes.
  package mutating func readText(limit: Int) throws(DecodingFailure) -> String {
    let bytes = try readCounted(limit: limit)
    guard let text = String(validating: bytes, as: UTF8.self) else {
      throw DecodingFailure("text is not UTF-8")
    }
    return text
  }

  /// A 16-byte actor.
  package mutating func readActor() throws(DecodingFailure) -> ActorID {
    guard let actor = ActorID(bytes: try read(raw: 16)) else { throw DecodingFailure("actor") }
    return actor
  }

  /// An actor, then a sequence from 1.
  package mutating func readDot() throws(DecodingFailure) -> Dot {
    let actor = try readActor()
    let sequence = try readVariable()
    guard sequence > 0 else { throw DecodingFailure("sequence 0") }
    return Dot(actor: actor, sequence: sequence)
  }

  /// A vector of at most `Limits.actors` actors, strictly ascending.
  package mutating func readVector() throws(DecodingFailure) -> VersionVector {
    let count = try readCount(limit: Limits.actors)
    var vector = VersionVector()
    var last: ActorID?
    for _ in 0..<count {
      let dot = try readDot()
      if let last, dot.actor <= last { throw DecodingFailure("actors out of order") }
      last = dot.actor
      vector[dot.actor] = dot.sequence
    }
    return vector
  }

  /// Fails if bytes are left over.
  package func end() throws(DecodingFailure) {
    guard remaining == 0 else { throw DecodingFailure("\(remaining) bytes too many") }
  }
}

/// Appends fields to bytes: little-endian, no padding. The counterpart of `ByteReader`.
package struct ByteWriter {
  /// The bytes written.
  package private(set) var bytes: [UInt8] = []

  /// An empty writer; `capacity` bytes are reserved.
  package init(capacity: Int = 0) { bytes.reserveCapacity(capacity) }

  /// Appends an integer in its own width.
  package mutating func write<Integer: FixedWidthInteger>(_ value: Integer) {
    var rest = value
    for _ in 0..<(Integer.bitWidth / 8) {
      bytes.append(UInt8(truncatingIfNeeded: rest))
      rest = Integer.bitWidth > 8 ? rest >> 8 : 0
    }
  }

  /// Appends an unsigned LEB128 integer: 7 bits a byte, lowest first, the top bit set on all but the last.
  package mutating func writeVariable(_ value: UInt64) {
    bytes.append(addingCapacity: 10) { $0.append(variable: value) }
  }

  /// Appends the bytes without a count.
  package mutating func write(raw: some Sequence<UInt8>) { bytes.append(contentsOf: raw) }

  /// Appends the bytes that `fill` writes, at most `count`.
  package mutating func write(most count: Int, _ fill: (inout OutputSpan<UInt8>) -> Void) {
    bytes.append(addingCapacity: count, initializingWith: fill)
  }

  /// Appends the bytes of another writer.
  package mutating func write(_ other: ByteWriter) { bytes.append(contentsOf: other.bytes) }

  /// Inserts the bytes of another writer before all that was written.
  package mutating func write(atStart other: ByteWriter) { bytes.insert(contentsOf: other.bytes, at: 0) }

  /// Appends the number of bytes (LEB128), then the bytes.
  package mutating func write(counted: some Collection<UInt8>) {
    writeVariable(UInt64(counted.count))
    bytes.append(contentsOf: counted)
  }

  /// Appends the number of bytes (LEB128), then the bytes, which are in place.
  package mutating func write(counted: Span<UInt8>) {
    writeVariable(UInt64(counted.count))
    bytes.append(copying: counted)
  }

  /// Specialised for arrays: in another module the generic form would copy them byte by byte.
  package mutating func write(counted: [UInt8]) { write(counted: counted.span) }

  /// Appends the number of UTF-8 bytes (LEB128), then the bytes.
  package mutating func write(text: String) { write(counted: Array(text.utf8)) }

  /// Appends the 16 bytes of the actor, then the sequence (LEB128).
  package mutating func write(_ dot: Dot) {
    write(dot.actor.high.bigEndian)
    write(dot.actor.low.bigEndian)
    writeVariable(dot.sequence)
  }

  /// Appends the number of actors (LEB128), then each as a dot, in the order of actors.
  package mutating func write(_ vector: VersionVector) {
    writeVariable(UInt64(vector.count))
    vector.forEach { write($0) }
  }
}

/// The subset of CBOR (RFC 8949) for encoded values; `schemas/values.md` defines it.
enum CBOR {
  /// Major types, at their bits of an item's first byte.
  enum Major {
    static let unsigned: UInt8 = 0 << 5
    static let negative: UInt8 = 1 << 5
    static let bytes: UInt8 = 2 << 5
    static let text: UInt8 = 3 << 5
    static let array: UInt8 = 4 << 5
    static let map: UInt8 = 5 << 5
    static let tag: UInt8 = 6 << 5
    static let simple: UInt8 = 7 << 5
  }

  static let falseItem: UInt8 = 0xF4
  static let trueItem: UInt8 = 0xF5
  static let nullItem: UInt8 = 0xF6
  static let half: UInt8 = 0xF9
  static let single: UInt8 = 0xFA
  static let double: UInt8 = 0xFB

  /// Seconds since 1970 (RFC 8949 §3.4.2).
  static let epochTime: UInt64 = 1
  /// A map of seconds and fractions of them (RFC 9581).
  static let extendedTime: UInt64 = 1001
  /// The 16 bytes of a UUID.
  static let uuid: UInt64 = 37
  /// The keys of the map of an extended time: seconds, and nanoseconds, −9.
  static let secondsKey: UInt64 = 1
  static let nanosecondsKey: UInt64 = 8
  static let nanosecondsPerSecond: UInt64 = 1_000_000_000

  /// An item's first byte and its argument.
  struct Head {
    /// The first byte.
    let first: UInt8
    /// The number, length or count; the bits of a float.
    let argument: UInt64
    /// Offset of the content after the head.
    let next: Int

    var major: UInt8 { first & 0xE0 }

    /// Name of the item's kind, for people.
    var noun: String {
      switch major {
      case Major.unsigned, Major.negative: "an integer"
      case Major.bytes: "bytes"
      case Major.text: "text"
      case Major.array: "an array"
      case Major.map: "an object"
      case Major.tag:
        switch argument {
        case CBOR.epochTime, CBOR.extendedTime: "a date"
        case CBOR.uuid: "a UUID"
        default: "an item with tag \(argument)"
        }
      default:
        switch first {
        case CBOR.falseItem, CBOR.trueItem: "a Bool"
        case CBOR.nullItem: "null"
        case CBOR.half, CBOR.single, CBOR.double: "a floating-point number"
        default: "the simple value \(argument)"
        }
      }
    }
  }
}

extension ByteBuffer {
  /// Appends an item's first byte and its argument, in the shortest form.
  @inline(__always)
  func append(major: UInt8, _ argument: UInt64) {
    if argument < 24 {
      append(major | UInt8(truncatingIfNeeded: argument))
    } else if argument <= UInt64(UInt8.max) {
      append(major | 24, bigEndian: UInt8(truncatingIfNeeded: argument))
    } else if argument <= UInt64(UInt16.max) {
      append(major | 25, bigEndian: UInt16(truncatingIfNeeded: argument))
    } else if argument <= UInt64(UInt32.max) {
      append(major | 26, bigEndian: UInt32(truncatingIfNeeded: argument))
    } else {
      append(major | 27, bigEndian: argument)
    }
  }

  /// Appends an integer as an item.
  @inline(__always)
  func append(item number: some FixedWidthInteger & Sendable) {
    if number < 0 {
      append(major: CBOR.Major.negative, UInt64(truncatingIfNeeded: ~number))
    } else {
      append(major: CBOR.Major.unsigned, UInt64(truncatingIfNeeded: number))
    }
  }

  @inline(__always)
  func append(item truth: Bool) { append(truth ? CBOR.trueItem : CBOR.falseItem) }

  @inline(__always)
  func append(item number: Float) { append(CBOR.single, bigEndian: number.bitPattern) }

  @inline(__always)
  func append(item number: Double) { append(CBOR.double, bigEndian: number.bitPattern) }

  @inline(__always)
  func append(item text: String) {
    append(text) { append(major: CBOR.Major.text, UInt64($0)) }
  }

  func append(item bytes: [UInt8]) {
    append(major: CBOR.Major.bytes, UInt64(bytes.count))
    append(bytes.span)
  }

  func append(item: ValueItem) {
    switch item {
    case .bytes(let bytes): append(item: bytes)
    case .time(let seconds):
      append(major: CBOR.Major.tag, CBOR.epochTime)
      append(item: seconds)
    case .instant(let seconds, let nanoseconds):
      append(major: CBOR.Major.tag, CBOR.extendedTime)
      append(major: CBOR.Major.map, 2)
      append(major: CBOR.Major.unsigned, CBOR.secondsKey)
      append(item: seconds)
      append(major: CBOR.Major.negative, CBOR.nanosecondsKey)
      append(item: nanoseconds)
    case .uuid(let high, let low):
      append(major: CBOR.Major.tag, CBOR.uuid)
      append(CBOR.Major.bytes | 16, bigEndian: high)
      append(bigEndian: low)
    }
  }

  private func append(bigEndian number: UInt64) { append(littleEndian: number.byteSwapped) }
}

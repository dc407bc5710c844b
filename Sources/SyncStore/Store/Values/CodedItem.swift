/// A coded value as a tree, for tools that show values whose types they do not know.
package indirect enum CodedItem: Equatable, Sendable {
  /// Nothing.
  case null
  /// A truth value.
  case bool(Bool)
  /// An integer from 0.
  case unsigned(UInt64)
  /// −1 minus that number.
  case negative(UInt64)
  /// A number of 16 or 32 bits.
  case float(Float)
  /// A number of 64 bits.
  case double(Double)
  /// Text.
  case text(String)
  /// Any bytes.
  case bytes([UInt8])
  /// A list of items.
  case array([CodedItem])
  /// Keys and values, in stored order.
  case object([(key: CodedItem, value: CodedItem)])
  /// A time or a UUID.
  case item(ValueItem)
  /// An item unknown to this program.
  case other(String)

  /// Compares the encoded bytes.
  package static func == (left: CodedItem, right: CodedItem) -> Bool { left.bytes == right.bytes }

  /// Decodes bytes of type `cbor`. Throws `.malformedValue` or `.outOfBounds` if they are invalid.
  package init(decoding bytes: [UInt8]) throws(StoreError) {
    let source = ValueSource(bytes)
    try source.validate()
    do { self = try Self.read(source, 0) } catch { throw EncodedValue.storeError(error, CodedItem.self) }
  }

  private static func read(_ source: ValueSource, _ at: Int) throws -> CodedItem {
    let head = source.head(at)
    switch head.major {
    case CBOR.Major.unsigned: return .unsigned(head.argument)
    case CBOR.Major.negative: return .negative(head.argument)
    case CBOR.Major.text: return .text(try source.text(at: at))
    case CBOR.Major.bytes: return .bytes(try source.byteString(at: at))
    case CBOR.Major.array: return .array(try source.elements(at: at) { try read(source, $0) })
    case CBOR.Major.map:
      var entries: [(key: CodedItem, value: CodedItem)] = []
      var place = head.next
      for _ in 0..<Int(head.argument) {
        let value = source.skip(place)
        entries.append((try read(source, place), try read(source, value)))
        place = source.skip(value)
      }
      return .object(entries)
    case CBOR.Major.tag:
      if let item = try? source.item(at: at) { return .item(item) }
      return .other(head.noun)
    default:
      switch head.first {
      case CBOR.nullItem: return .null
      case CBOR.falseItem, CBOR.trueItem: return .bool(head.first == CBOR.trueItem)
      case CBOR.double: return .double(try source.double(at: at))
      case CBOR.half, CBOR.single: return .float(try source.float(at: at))
      default: return .other(head.noun)
      }
    }
  }

  /// The encoded bytes of the tree.
  package var bytes: [UInt8] {
    let buffer = ByteBuffer()
    write(to: buffer)
    return buffer.bytes(0..<buffer.count)
  }

  private func write(to buffer: ByteBuffer) {
    switch self {
    case .null, .other: buffer.append(CBOR.nullItem)
    case .bool(let value): buffer.append(item: value)
    case .unsigned(let value): buffer.append(major: CBOR.Major.unsigned, value)
    case .negative(let value): buffer.append(major: CBOR.Major.negative, value)
    case .float(let value): buffer.append(item: value)
    case .double(let value): buffer.append(item: value)
    case .text(let value): buffer.append(item: value)
    case .bytes(let value): buffer.append(item: value)
    case .item(let value): buffer.append(item: value)
    case .array(let items):
      buffer.append(major: CBOR.Major.array, UInt64(items.count))
      for item in items { item.write(to: buffer) }
    case .object(let entries):
      buffer.append(major: CBOR.Major.map, UInt64(entries.count))
      for entry in entries {
        entry.key.write(to: buffer)
        entry.value.write(to: buffer)
      }
    }
  }
}

extension EncodedValue {
  /// The time or UUID in the bytes; nil if their type is another one, or they do not match it.
  package var item: ValueItem? { (try? Self.item(bytes, type)).flatMap { $0 } }
}

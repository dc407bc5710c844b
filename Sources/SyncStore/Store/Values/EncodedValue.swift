/// The stored form of a value of any `Codable` type.
///
/// Equal values of a type have equal forms, as far as the type encodes itself in a fixed order (a `Set` does
/// not).
public struct EncodedValue: Hashable, Sendable {
  /// The bytes, in a format of `schemas/values.md`.
  public let bytes: [UInt8]
  /// The type stored with them.
  public let type: ValueType

  /// Encodes a value. Throws `.wrongType` if it cannot be encoded, `.outOfBounds` if it takes more than
  /// `Limits.codedValueBytes` or is nested deeper than `Limits.codedValueDepth`.
  public init<Content: Encodable>(_ value: Content) throws(StoreError) {
    self = try Self.with(value) { bytes, type throws(StoreError) in
      EncodedValue(bytes: [UInt8](copying: bytes), type: type)
    }
  }

  /// Wraps bytes that are already encoded.
  public init(bytes: [UInt8], type: ValueType) { (self.bytes, self.type) = (bytes, type) }

  /// Decodes the value.
  ///
  /// - Throws: `.wrongType` if it is of another type, `.outOfBounds` if a number in it is too large for its
  ///   property, `.malformedValue` if the bytes do not match their type.
  public func decoded<Content: Decodable>(as _: Content.Type = Content.self) throws(StoreError) -> Content {
    try Self.decode(Content.self, from: bytes, type: type)
  }
}

extension Value {
  /// The value decoded as a type of the program.
  ///
  /// - Throws: as `EncodedValue.decoded`.
  public func decoded<Content: Decodable>(as _: Content.Type = Content.self) throws(StoreError) -> Content {
    try EncodedValue.decode(Content.self, from: bytes, type: type)
  }
}

extension EncodedValue {
  // MARK: Encoding

  /// Encodes a value into a reused buffer and passes its form to `body`.
  @inline(__always)
  static func with<Content: Encodable, Result>(
    _ value: Content, _ body: (Span<UInt8>, ValueType) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    var encoder = ValueEncoder.pool.acquire()
    defer { ValueEncoder.pool.release(&encoder) }
    do { try encoder.write(value) } catch { throw storeError(error, Content.self) }
    let buffer = encoder.buffer
    // The first byte of an object or array.
    if buffer[0] & 0xC0 == 0x80 {
      try check(buffer, isDeep: encoder.isDeep)
      return try buffer.withSpan(0..<buffer.count) { bytes throws(StoreError) in try body(bytes, .cbor) }
    }
    let (range, type) = try uncoded(buffer)
    return try buffer.withSpan(range) { bytes throws(StoreError) in try body(bytes, type) }
  }

  /// Refuses a value that could not be read again.
  @inline(__always)
  private static func check(_ buffer: ByteBuffer, isDeep: Bool) throws(StoreError) {
    guard buffer.count > Limits.codedValueBytes || isDeep else { return }
    let source = ValueSource()
    buffer.withSpan(0..<buffer.count) { source.fill($0) }
    try source.validate()
  }

  /// The form of a single item whose type has its own scalar format: a tool shows it as such, and reading it
  /// as a scalar finds an enumeration's raw value.
  @inline(never)
  private static func uncoded(_ buffer: ByteBuffer) throws(StoreError) -> (Range<Int>, ValueType) {
    let whole = 0..<buffer.count
    let source = ValueSource(buffer.bytes(whole))
    let head = source.head(0)
    func replaced(_ bits: UInt64, _ type: ValueType, bytes: Int = 8) -> (Range<Int>, ValueType) {
      let start = buffer.count
      buffer.append(littleEndian: bits)
      return (start..<(start + bytes), type)
    }
    switch head.major {
    case CBOR.Major.text: return (head.next..<buffer.count, .string)
    case CBOR.Major.bytes: return (head.next..<buffer.count, .bytes)
    case CBOR.Major.unsigned: return replaced(head.argument, head.argument > UInt64(Int64.max) ? .uint : .int)
    case CBOR.Major.negative: return replaced(~head.argument, .int)
    case CBOR.Major.tag:
      switch try? source.item(at: 0) {
      case .time(let seconds)?: return replaced(seconds.bitPattern, .date)
      case .instant(let seconds, let nanoseconds)?:
        let start = buffer.count
        buffer.append(littleEndian: UInt64(bitPattern: seconds))
        return (start..<(replaced(UInt64(nanoseconds), .date, bytes: 4).0.upperBound), .date)
      case .uuid?: return (buffer.count - 16..<buffer.count, .uuid)
      default: return (whole, .cbor)
      }
    default:
      switch head.first {
      case CBOR.falseItem: return replaced(0, .bool, bytes: 1)
      case CBOR.trueItem: return replaced(1, .bool, bytes: 1)
      case CBOR.single: return replaced(head.argument, .float, bytes: 4)
      case CBOR.double: return replaced(head.argument, .double)
      default: return (whole, .cbor)
      }
    }
  }

  // MARK: Decoding

  @inline(__always)
  static func decode<Content: Decodable>(
    _: Content.Type, from bytes: [UInt8], type: ValueType
  ) throws(StoreError) -> Content {
    var source = ValueSource.pool.acquire()
    defer { ValueSource.pool.release(&source) }
    source.fill(bytes.span)
    return try decode(Content.self, from: source, type: type)
  }

  @inline(__always)
  static func decode<Content: Decodable>(
    _: Content.Type, from bytes: RawSpan, type: ValueType
  ) throws(StoreError) -> Content {
    var source = ValueSource.pool.acquire()
    defer { ValueSource.pool.release(&source) }
    source.fill(bytes)
    return try decode(Content.self, from: source, type: type)
  }

  /// Decodes the bytes in the source.
  @inline(__always)
  static func decode<Content: Decodable>(
    _: Content.Type, from source: ValueSource, type: ValueType
  ) throws(StoreError) -> Content {
    if type != .cbor { try code(source, type: type, as: Content.self) }
    try source.validate(limit: type == .cbor ? Limits.codedValueBytes : .max)
    do { return try source.read(Content.self, at: 0) } catch { throw storeError(error, Content.self) }
  }

  /// Replaces the stored scalar by the equivalent CBOR item, which types other than scalars decode from.
  @inline(never)
  private static func code<Content>(
    _ source: ValueSource, type: ValueType, as: Content.Type
  ) throws(StoreError) {
    let bytes = source.bytes.bytes(0..<source.bytes.count)
    let buffer = source.bytes
    source.reset()
    if let scalar = try StoreError.only({ try bytes.withRawSpan { try Scalar($0, type) } }) {
      switch scalar {
      case .bool(let value): buffer.append(item: value)
      case .int(let value): buffer.append(item: value)
      case .uint(let value): buffer.append(item: value)
      case .float(let value): buffer.append(item: value)
      case .double(let value): buffer.append(item: value)
      case .string(let value): buffer.append(item: value)
      case .bytes(let value): buffer.append(item: value)
      }
    } else {
      guard let item = try item(bytes, type) else {
        throw StoreError(
          .wrongType,
          "the value is of type \(type), not a value of type \(Content.self): read it as what it is")
      }
      buffer.append(item: item)
    }
  }

  static func item(_ bytes: [UInt8], _ type: ValueType) throws(StoreError) -> ValueItem? {
    switch (type, bytes.count) {
    case (.date, 8): return .time(secondsSince1970: Double(bitPattern: bytes.load(0)))
    case (.date, 12):
      let nanoseconds: UInt32 = bytes.load(8)
      guard UInt64(nanoseconds) < CBOR.nanosecondsPerSecond else { throw Scalar.malformed(type) }
      return .instant(secondsSince1970: Int64(bitPattern: bytes.load(0)), nanoseconds: nanoseconds)
    case (.uuid, 16):
      return .uuid(bytes.load(0, as: UInt64.self).byteSwapped, bytes.load(8, as: UInt64.self).byteSwapped)
    case (.date, _), (.uuid, _): throw Scalar.malformed(type)
    default: return nil
    }
  }

  /// Translates an error thrown by a type's own coding.
  @inline(never)
  static func storeError<Content>(_ error: any Error, _: Content.Type) -> StoreError {
    if let error = error as? StoreError { return error }
    let context: (path: [any CodingKey], text: String, cause: (any Error)?)
    switch error {
    case DecodingError.typeMismatch(_, let found), DecodingError.valueNotFound(_, let found),
      DecodingError.keyNotFound(_, let found), DecodingError.dataCorrupted(let found):
      context = (found.codingPath, found.debugDescription, found.underlyingError)
    case EncodingError.invalidValue(_, let found):
      context = (found.codingPath, found.debugDescription, found.underlyingError)
    default: context = ([], "\(error)", nil)
    }
    if let cause = context.cause as? StoreError {
      return StoreError(cause.code, "\(cause.message) (in a value of type \(Content.self))")
    }
    let subject = context.path.isEmpty ? "" : ValueSource.description(of: context.path) + ": "
    return StoreError(.wrongType, "\(subject)\(context.text) (in a value of type \(Content.self))")
  }
}

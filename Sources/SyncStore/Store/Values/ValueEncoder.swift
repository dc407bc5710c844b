/// Encodes a value as CBOR in one pass: each property is appended to the buffer at once.
///
/// Invariants: `frame` is the item being encoded, `outer` are the enclosing ones, outermost first; only the
/// containers of `frame` may be written to. A container's first byte is written when it is requested, its
/// count when its item is complete. The items of `nestedContainer` and `superEncoder` may be written to in
/// any order, so they get encoders of their own; their output is inserted when the enclosing item is
/// complete.
final class ValueEncoder: Encoder {
  /// State of an item being encoded.
  struct Frame {
    enum Kind { case none, one, array, map }
    /// Unique in this encoder.
    var number: Int
    /// Offset of its first byte.
    var start: Int
    var kind = Kind.none
    /// Number of elements, or of key-value pairs.
    var count = 0
    /// Offset of the last key.
    var key = 0
    /// Number of pending encoders that belong to enclosing items.
    var pendingBefore: Int
    /// Whether it is a dictionary, whose order differs between processes.
    var isDictionary = false
  }

  let buffer: ByteBuffer
  private(set) var frame = Frame(number: 0, start: 0, pendingBefore: 0)
  private var outer: [Frame] = []
  private var pending: [(place: Int, encoder: ValueEncoder)] = []
  private var lastNumber = 0
  /// Nesting depth of the item that this encoder is for.
  private let depth: Int
  private let path: [any CodingKey]
  /// An error of a container request, which cannot throw.
  private var failure: (any Error)?
  /// Whether it came so near to the greatest depth that only validating the bytes tells whether a reader
  /// accepts them. Arrays of scalars, dates and UUIDs are levels as well, and are written without a depth
  /// check.
  private(set) var isDeep = false

  init(buffer: ByteBuffer = ByteBuffer(), depth: Int = 0, path: [any CodingKey] = []) {
    (self.buffer, self.depth, self.path) = (buffer, depth, path)
  }

  convenience init() { self.init(buffer: ByteBuffer()) }

  var userInfo: [CodingUserInfoKey: Any] { [:] }

  /// Resets the encoder for reuse.
  func reset() {
    buffer.truncate(to: 0)
    frame = Frame(number: 0, start: 0, pendingBefore: 0)
    if !outer.isEmpty { outer.removeAll(keepingCapacity: true) }
    if !pending.isEmpty { pending.removeAll() }
    lastNumber = 0
    failure = nil
    isDeep = false
  }

  // MARK: Items

  /// Encodes any value: the one that this encoder is for, or one nested in it.
  @inline(__always)
  func write<Value: Encodable>(_ value: Value) throws {
    if SelfCodingTypes.contains(Value.self) {
      try nest(value)
    } else if let text = staticCast(value, as: String.self) {
      buffer.append(item: text)
    } else {
      try writeOther(value)
    }
  }

  @inline(never)
  private func writeOther<Value: Encodable>(_ value: Value) throws {
    if let bytes = staticCast(value, as: [UInt8].self) { return buffer.append(item: bytes) }
    if write(array: value) { return }
    if let value = value as? any ValueItemConvertible { return buffer.append(item: value.valueItem) }
    SelfCodingTypes.insert(Value.self)
    try nest(value)
  }

  /// Arrays whose elements need no container. False for other types.
  private func write<Value>(array value: Value) -> Bool {
    func write<Element>(_ array: [Element], _ append: (Element) -> Void) -> Bool {
      buffer.append(major: CBOR.Major.array, UInt64(array.count))
      for element in array { append(element) }
      return true
    }
    let buffer = buffer
    if let array = staticCast(value, as: [String].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [Int].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [Double].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [Float].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [Int32].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [Int64].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [UInt32].self) { return write(array) { buffer.append(item: $0) } }
    if let array = staticCast(value, as: [UInt64].self) { return write(array) { buffer.append(item: $0) } }
    return false
  }

  private func nest<Value: Encodable>(_ value: Value) throws {
    // The outermost item needs no frame of its own.
    if lastNumber == 0, depth == 0, frame.kind == .none {
      try value.encode(to: self)
      return try complete()
    }
    do {
      guard depth + outer.count < Limits.codedValueDepth else {
        throw misuse("is nested deeper than \(Limits.codedValueDepth) levels", .outOfBounds)
      }
      checkDepth()
      outer.append(frame)
      defer { frame = outer.removeLast() }
      lastNumber += 1
      frame = Frame(number: lastNumber, start: buffer.count, pendingBefore: pending.count)
      try value.encode(to: self)
      try complete()
    } catch {
      // The enclosing item now lacks a value, even if its type catches the error.
      recordFailure(error)
      throw error
    }
  }

  private func checkDepth() {
    if depth + outer.count >= Limits.codedValueDepth - 4 { isDeep = true }
  }

  /// Completes the item that this encoder is for, if its containers wrote it rather than `write`.
  func finish() throws -> ByteBuffer {
    try complete()
    return buffer
  }

  private func complete() throws {
    if let failure { throw failure }
    if pending.count > frame.pendingBefore { try insertPending() }
    switch frame.kind {
    case .one: break
    // A type without properties encodes nothing.
    case .none: buffer.append(CBOR.Major.map)
    case .array: complete(CBOR.Major.array)
    case .map:
      if frame.isDictionary, frame.count > 1 { sortKeys() }
      complete(CBOR.Major.map)
    }
    guard buffer.count <= Limits.codedValueBytes else {
      throw misuse("takes more than \(Limits.codedValueBytes) bytes", .outOfBounds)
    }
  }

  /// Writes the count into the container's first byte.
  @inline(__always)
  private func complete(_ major: UInt8) {
    if frame.count < 24 {
      buffer[frame.start] = major | UInt8(truncatingIfNeeded: frame.count)
    } else {
      let head = ByteBuffer(capacity: 9)
      head.append(major: major, UInt64(frame.count))
      buffer[frame.start] = head[0]
      head.withSpan(1..<head.count) { buffer.insert($0, at: frame.start + 1) }
    }
  }

  private func insertPending() throws {
    var moved = 0
    for item in pending[frame.pendingBefore...] {
      let inner = try item.encoder.finish()
      isDeep = isDeep || item.encoder.isDeep
      inner.withSpan(0..<inner.count) { buffer.insert($0, at: item.place + moved) }
      moved += inner.count
    }
    pending.removeSubrange(frame.pendingBefore...)
  }

  /// Sorts the keys, so that equal dictionaries are encoded equally.
  private func sortKeys() {
    let body = ValueSource(buffer.bytes(frame.start + 1..<buffer.count))
    var at = 0
    var entries: [(key: [UInt8], entry: [UInt8])] = []
    while at < body.bytes.count {
      let value = body.skip(at)
      let end = body.skip(value)
      entries.append((body.bytes.bytes(at..<value), body.bytes.bytes(at..<end)))
      at = end
    }
    // Shorter keys first, then bytewise: that is the order of whole items (RFC 8949 §4.2.1).
    entries.sort { $0.key.lexicographicallyPrecedes($1.key) }
    buffer.truncate(to: frame.start + 1)
    for entry in entries { buffer.append(entry.entry.span) }
  }

  // MARK: Containers

  func container<Key: CodingKey>(keyedBy _: Key.Type) -> KeyedEncodingContainer<Key> {
    open(.map, CBOR.Major.map)
    frame.isDictionary = ObjectIdentifier(Key.self) == Self.dictionaryKey
    return KeyedEncodingContainer(ValueKeyedEncodingContainer<Key>(encoder: self, number: frame.number))
  }

  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    open(.array, CBOR.Major.array)
    return ValueUnkeyedEncodingContainer(encoder: self, number: frame.number)
  }

  func singleValueContainer() -> any SingleValueEncodingContainer {
    ValueSingleEncodingContainer(encoder: self, number: frame.number)
  }

  private func open(_ kind: Frame.Kind, _ first: UInt8) {
    switch frame.kind {
    case .none:
      frame.kind = kind
      buffer.append(first)
    // Another container of the same item, such as one for the properties of a superclass.
    case kind where kind != .one: break
    default: failure = misuse("encodes itself in two ways")
    }
  }

  /// The key type that the standard library uses for dictionaries of strings and integers.
  private static let dictionaryKey: ObjectIdentifier? = {
    let probe = DictionaryKeyProbe()
    try? ["": 0].encode(to: probe)
    return probe.key
  }()

  // MARK: Container elements

  /// Counts an element before it is written to the item's array.
  @inline(__always)
  func element(of number: Int) throws {
    guard frame.number == number else { throw outOfTurn() }
    frame.count &+= 1
  }

  /// Writes a key of the item's object.
  @inline(__always)
  func key(_ key: some CodingKey, of number: Int) throws {
    guard frame.number == number else { throw outOfTurn() }
    frame.count &+= 1
    frame.key = buffer.count
    buffer.append(item: key.stringValue)
  }

  /// Checks that a single value may be written.
  @inline(__always)
  func single(of number: Int) throws {
    guard frame.number == number else { throw outOfTurn() }
    guard frame.kind == .none else { throw misuse("encodes more than one value") }
    frame.kind = .one
  }

  /// An encoder whose output is inserted here later.
  func deferredEncoder() throws -> ValueEncoder {
    guard depth + outer.count + 1 < Limits.codedValueDepth else {
      throw misuse("is nested deeper than \(Limits.codedValueDepth) levels", .outOfBounds)
    }
    checkDepth()
    let encoder = ValueEncoder(depth: depth + outer.count + 1, path: codingPath)
    pending.append((buffer.count, encoder))
    return encoder
  }

  func recordFailure(_ error: any Error) {
    failure = failure ?? error
  }

  func count(of number: Int) -> Int { frame.number == number ? frame.count : 0 }

  private func outOfTurn() -> EncodingError {
    misuse("writes to a container while another value is being encoded")
  }

  private func misuse(_ what: String, _ code: StoreError.Code = .wrongType) -> EncodingError {
    let path = codingPath
    let subject = path.isEmpty ? "the value" : ValueSource.description(of: path)
    return .invalidValue(
      (),
      .init(codingPath: path, debugDescription: what, underlyingError: StoreError(code, "\(subject) \(what)"))
    )
  }

  /// Derived from the written keys, as it is seldom needed.
  var codingPath: [any CodingKey] {
    path
      + (outer + [frame]).compactMap { frame in
        switch frame.kind {
        case .none, .one: return nil
        case .array: return frame.count > 0 ? ValueKey(index: frame.count - 1) : nil
        case .map:
          guard frame.count > 0 else { return nil }
          let source = ValueSource(buffer.bytes(frame.key..<buffer.count))
          return (try? source.text(at: 0)).map { ValueKey(stringValue: $0) }
        }
      }
  }
}

/// A key with a name or an index.
struct ValueKey: CodingKey {
  let stringValue: String
  let intValue: Int?

  init(stringValue: String) { (self.stringValue, intValue) = (stringValue, nil) }
  init(intValue: Int) { (stringValue, self.intValue) = ("\(intValue)", intValue) }
  init(index: Int) { (stringValue, intValue) = ("[\(index)]", index) }
}

/// Finds the standard library's private key type for dictionaries.
private final class DictionaryKeyProbe: Encoder {
  var key: ObjectIdentifier?
  var codingPath: [any CodingKey] { [] }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    key = ObjectIdentifier(Key.self)
    let encoder = ValueEncoder()
    return KeyedEncodingContainer(ValueKeyedEncodingContainer<Key>(encoder: encoder, number: 0))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer { ValueEncoder().unkeyedContainer() }
  func singleValueContainer() -> any SingleValueEncodingContainer { ValueEncoder().singleValueContainer() }
}

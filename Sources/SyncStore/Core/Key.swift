/// The name of a value: 1 to `Limits.keyBytes` bytes, of which the first is not zero. Ordered as bytes.
public struct Key: Hashable, Comparable, Sendable {
  /// The bytes.
  public let bytes: [UInt8]

  /// The key of these bytes. `.invalidKey` if it is empty, too long or reserved.
  public init(bytes: [UInt8]) throws(StoreError) {
    guard !bytes.isEmpty else { throw StoreError(.invalidKey, "a key has at least one byte: give one") }
    guard bytes.count <= Limits.keyBytes else {
      throw StoreError(
        .invalidKey, "a key has at most \(Limits.keyBytes) bytes, this one has \(bytes.count): shorten it")
    }
    guard !ReservedKey.isReserved(bytes) else {
      throw StoreError(.invalidKey, "keys that begin with a zero byte are the store's own: choose another")
    }
    self.bytes = bytes
  }

  /// The key of this text's UTF-8 bytes. `.invalidKey` if it is empty, too long or reserved.
  public init(_ text: String) throws(StoreError) { try self.init(bytes: Array(text.utf8)) }

  /// For bytes already known to be a valid user's key.
  init(unchecked bytes: [UInt8]) { self.bytes = bytes }

  /// The order of the bytes.
  public static func < (left: Key, right: Key) -> Bool { left.bytes.lexicographicallyPrecedes(right.bytes) }
}

extension Key: CustomStringConvertible {
  /// The text, if the bytes are UTF-8; else `0x` and hex digits.
  public var description: String {
    String(validating: bytes, as: UTF8.self) ?? "0x" + Hex.string(of: bytes)
  }
}

extension Key: ExpressibleByStringLiteral {
  /// The key of this literal. An invalid literal is a programming error and traps.
  public init(stringLiteral text: String) {
    let bytes = Array(text.utf8)
    precondition(
      !bytes.isEmpty && bytes.count <= Limits.keyBytes && bytes[0] != 0,
      "\(text.debugDescription) cannot be a key")
    self.bytes = bytes
  }
}

/// A value as read from the store.
public struct Value: Hashable, Sendable {
  /// The bytes.
  public let bytes: [UInt8]
  /// The type stored with it.
  public let type: ValueType
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
}

/// Metadata of a key, available without reading its value.
public struct Entry: Hashable, Sendable {
  /// The key.
  public let key: Key
  /// The type of its value.
  public let type: ValueType
  /// Bytes of its value.
  public let size: UInt64
  /// When the value was written.
  public let stamp: Stamp
  /// The write that it comes from.
  public let dot: Dot
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
  /// Reference to the value in the blob tier; nil if the value is inline.
  public let blob: BlobReference?
}

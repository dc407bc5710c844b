/// The types that are stored as scalars.
extension Bool: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .bool(self) }
  /// The value of a stored scalar; throws `.wrongType` for another type.
  public init(_ scalar: Scalar) throws(StoreError) {
    guard case .bool(let value) = scalar else { throw scalar.mismatch(Bool.self) }
    self = value
  }
}

extension String: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .string(self) }
  /// The value of a stored scalar; throws `.wrongType` for another type.
  public init(_ scalar: Scalar) throws(StoreError) {
    guard case .string(let value) = scalar else { throw scalar.mismatch(String.self) }
    self = value
  }
}

extension Array: ScalarValue where Element == UInt8 {
  /// The stored form.
  public var scalar: Scalar { .bytes(self) }
  /// The value of a stored scalar; throws `.wrongType` for another type.
  public init(_ scalar: Scalar) throws(StoreError) {
    guard case .bytes(let value) = scalar else { throw scalar.mismatch([UInt8].self) }
    self = value
  }
}

extension Double: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .double(self) }
  /// The value of a stored scalar; throws `.wrongType` for another type.
  public init(_ scalar: Scalar) throws(StoreError) {
    switch scalar {
    case .double(let value): self = value
    case .float(let value): self = Double(value)
    default: throw scalar.mismatch(Double.self)
    }
  }
}

extension Float: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .float(self) }
  /// The value of a stored scalar. Throws `.wrongType` for another type; `.outOfBounds` for a 64-bit value
  /// that this type cannot hold exactly.
  public init(_ scalar: Scalar) throws(StoreError) {
    switch scalar {
    case .float(let value): self = value
    case .double(let value):
      guard let exact = value.isNaN ? .nan : Float(exactly: value) else {
        throw StoreError(.outOfBounds, "the value is \(value), which Float cannot hold: read it as a Double")
      }
      self = exact
    default: throw scalar.mismatch(Float.self)
    }
  }
}

extension FixedWidthInteger where Self: ScalarValue {
  @inline(__always)
  init(from scalar: Scalar) throws(StoreError) {
    let exact: Self?
    switch scalar {
    case .int(let value): exact = Self(exactly: value)
    case .uint(let value): exact = Self(exactly: value)
    default: throw scalar.mismatch(Self.self)
    }
    guard let exact else { throw Self.outOfBounds(scalar) }
    self = exact
  }

  @inline(never)
  private static func outOfBounds(_ scalar: Scalar) -> StoreError {
    let shown =
      switch scalar {
      case .int(let value): "\(value)"
      case .uint(let value): "\(value)"
      default: ""
      }
    return StoreError(
      .outOfBounds, "the value is \(shown), which \(Self.self) cannot hold: read it as a wider type")
  }
}

extension Int: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .int(Int64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension Int8: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .int(Int64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension Int16: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .int(Int64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension Int32: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .int(Int64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension Int64: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .int(self) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension UInt: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .uint(UInt64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension UInt8: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .uint(UInt64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension UInt16: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .uint(UInt64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension UInt32: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .uint(UInt64(self)) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

extension UInt64: ScalarValue {
  /// The stored form.
  public var scalar: Scalar { .uint(self) }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if it does not fit.
  public init(_ scalar: Scalar) throws(StoreError) { try self.init(from: scalar) }
}

/// A type that can be part of a collection key: an identifier or an indexed value.
///
/// Its bytes sort like the values, and different values have different bytes; `schemas/values.md` has the
/// encodings. A type of a program conforms by forwarding to its content:
///
/// ```swift
/// struct OrderNumber: Codable, Hashable, KeyComponent {
///   let number: Int
///   func appendKeyBytes(to key: inout [UInt8]) { number.appendKeyBytes(to: &key) }
/// }
/// ```
///
/// A type whose raw value is a component only needs to declare conformance.
public protocol KeyComponent: Sendable {
  /// Appends the bytes. The first byte must not be 255.
  func appendKeyBytes(to key: inout [UInt8])
}

extension KeyComponent {
  /// The bytes.
  var keyBytes: [UInt8] {
    var bytes: [UInt8] = []
    appendKeyBytes(to: &bytes)
    return bytes
  }
}

extension KeyComponent where Self: RawRepresentable, RawValue: KeyComponent {
  /// Appends the bytes of the raw value.
  public func appendKeyBytes(to key: inout [UInt8]) { rawValue.appendKeyBytes(to: &key) }
}

extension String: KeyComponent {
  /// Appends the UTF-8 bytes. Texts sort by their scalar values, as `<` does for texts in normal form C;
  /// texts that are only canonically equal are different.
  public func appendKeyBytes(to key: inout [UInt8]) { key.append(contentsOf: utf8) }
}

extension Bool: KeyComponent {
  /// Appends `0` or `1`.
  public func appendKeyBytes(to key: inout [UInt8]) { key.append(self ? 0x31 : 0x30) }
}

extension Double: KeyComponent {
  /// Appends 16 hex digits, see `schemas/values.md`. Both zeros are one value; NaN sorts after all numbers.
  public func appendKeyBytes(to key: inout [UInt8]) {
    let number = isNaN ? .nan : self == 0 ? 0 : self
    let bits = number.bitPattern
    let ordered = bits >> 63 == 1 ? ~bits : bits | 1 << 63
    for shift in stride(from: UInt64(60), through: 0, by: -4) {
      let digit = UInt8(truncatingIfNeeded: ordered >> shift) & 15
      key.append(digit < 10 ? 0x30 + digit : 0x57 + digit)
    }
  }
}

extension Float: KeyComponent {
  /// Appends the bytes of the same number as a `Double`.
  public func appendKeyBytes(to key: inout [UInt8]) { Double(self).appendKeyBytes(to: &key) }
}

/// Decimal digits after a letter that gives their number, so that keys are readable and sort like the
/// numbers: `a7`, `b42`; `Z8` is −1, with its digits subtracted from 9.
enum KeyNumber {
  @inline(__always)
  static func append(_ number: some FixedWidthInteger, to key: inout [UInt8]) {
    if number < 0 {
      append(UInt64(number.magnitude), isNegative: true, to: &key)
    } else {
      append(UInt64(number), isNegative: false, to: &key)
    }
  }

  private static func append(_ magnitude: UInt64, isNegative: Bool, to key: inout [UInt8]) {
    var digits = InlineArray<20, UInt8>(repeating: 0)
    var rest = magnitude
    var count = 0
    repeat {
      let digit = UInt8(truncatingIfNeeded: rest % 10)
      digits[count] = 0x30 + (isNegative ? 9 - digit : digit)
      rest /= 10
      count += 1
    } while rest > 0
    key.append(isNegative ? 0x5B - UInt8(count) : 0x60 + UInt8(count))
    for index in stride(from: count - 1, through: 0, by: -1) { key.append(digits[index]) }
  }
}

extension KeyComponent where Self: FixedWidthInteger {
  /// Appends a letter and the decimal digits.
  public func appendKeyBytes(to key: inout [UInt8]) { KeyNumber.append(self, to: &key) }
}

extension Int: KeyComponent {}
extension Int8: KeyComponent {}
extension Int16: KeyComponent {}
extension Int32: KeyComponent {}
extension Int64: KeyComponent {}
extension UInt: KeyComponent {}
extension UInt8: KeyComponent {}
extension UInt16: KeyComponent {}
extension UInt32: KeyComponent {}
extension UInt64: KeyComponent {}

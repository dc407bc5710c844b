/// Values from one bound to another: any range, such as `"a"..<"m"`, `10...20` or `10...`.
public protocol KeyBounds<Bound> {
  /// What the range is of.
  associatedtype Bound: KeyComponent
  /// The first value in it; nil if there is none.
  var lowest: Bound? { get }
  /// The last value, or the first behind it; nil if there is none.
  var highest: Bound? { get }
  /// Is `highest` in it?
  var includesHighest: Bool { get }
}

extension Range: KeyBounds where Bound: KeyComponent {
  /// The first value in it.
  public var lowest: Bound? { lowerBound }
  /// The first value behind it.
  public var highest: Bound? { upperBound }
  /// No.
  public var includesHighest: Bool { false }
}

extension ClosedRange: KeyBounds where Bound: KeyComponent {
  /// The first value in it.
  public var lowest: Bound? { lowerBound }
  /// The last value in it.
  public var highest: Bound? { upperBound }
  /// Yes.
  public var includesHighest: Bool { true }
}

extension PartialRangeFrom: KeyBounds where Bound: KeyComponent {
  /// The first value in it.
  public var lowest: Bound? { lowerBound }
  /// There is none.
  public var highest: Bound? { nil }
  /// No.
  public var includesHighest: Bool { false }
}

extension PartialRangeUpTo: KeyBounds where Bound: KeyComponent {
  /// There is none.
  public var lowest: Bound? { nil }
  /// The first value behind it.
  public var highest: Bound? { upperBound }
  /// No.
  public var includesHighest: Bool { false }
}

extension PartialRangeThrough: KeyBounds where Bound: KeyComponent {
  /// There is none.
  public var lowest: Bound? { nil }
  /// The last value in it.
  public var highest: Bound? { upperBound }
  /// Yes.
  public var includesHighest: Bool { true }
}

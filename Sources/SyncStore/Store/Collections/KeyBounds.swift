/// Values from one bound to another: any range, such as `"a"..<"m"`, `10...20` or `10...`.
public protocol KeyBounds<Bound> {
  /// The type of the bounds.
  associatedtype Bound: KeyComponent
  /// The first value in it; nil if unbounded.
  var lowest: Bound? { get }
  /// The upper bound; nil if unbounded.
  var highest: Bound? { get }
  /// Whether `highest` is included.
  var includesHighest: Bool { get }
}

extension Range: KeyBounds where Bound: KeyComponent {
  /// The first value in it.
  public var lowest: Bound? { lowerBound }
  /// The excluded upper bound.
  public var highest: Bound? { upperBound }
  /// False.
  public var includesHighest: Bool { false }
}

extension ClosedRange: KeyBounds where Bound: KeyComponent {
  /// The first value in it.
  public var lowest: Bound? { lowerBound }
  /// The last value in it.
  public var highest: Bound? { upperBound }
  /// True.
  public var includesHighest: Bool { true }
}

extension PartialRangeFrom: KeyBounds where Bound: KeyComponent {
  /// The first value in it.
  public var lowest: Bound? { lowerBound }
  /// Unbounded.
  public var highest: Bound? { nil }
  /// False.
  public var includesHighest: Bool { false }
}

extension PartialRangeUpTo: KeyBounds where Bound: KeyComponent {
  /// Unbounded.
  public var lowest: Bound? { nil }
  /// The excluded upper bound.
  public var highest: Bound? { upperBound }
  /// False.
  public var includesHighest: Bool { false }
}

extension PartialRangeThrough: KeyBounds where Bound: KeyComponent {
  /// Unbounded.
  public var lowest: Bound? { nil }
  /// The last value in it.
  public var highest: Bound? { upperBound }
  /// True.
  public var includesHighest: Bool { true }
}

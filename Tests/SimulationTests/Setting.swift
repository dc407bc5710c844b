import Glibc

/// Settings of `make sim`, `make model` and the like: numbers in the environment.
enum Setting {
  /// The value of `name`, or `standard`.
  static func number(_ name: String, _ standard: Int) -> Int { given(name) ?? standard }

  /// `NAME_SEEDS` seeds, starting with `NAME_FIRST`.
  static func seeds(_ name: String, first: Int, count: Int) -> Range<Int> {
    let first = number("\(name)_FIRST", first)
    return first..<(first + number("\(name)_SEEDS", count))
  }

  /// The value of `name`; nil if it is not set.
  static func given(_ name: String) -> Int? {
    unsafe getenv(name).flatMap { unsafe Int(String(cString: $0)) }
  }
}

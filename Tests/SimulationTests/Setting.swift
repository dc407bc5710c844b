import Glibc

/// What `make sim` and `make model` say: numbers in the environment.
enum Setting {
  /// The number that `name` is set to, or `standard`.
  static func number(_ name: String, _ standard: Int) -> Int { given(name) ?? standard }

  /// As many seeds as `NAME_SEEDS` says, from `NAME_FIRST` on.
  static func seeds(_ name: String, first: Int, count: Int) -> Range<Int> {
    let first = number("\(name)_FIRST", first)
    return first..<(first + number("\(name)_SEEDS", count))
  }

  /// The number that `name` is set to; nil if it is not.
  static func given(_ name: String) -> Int? {
    unsafe getenv(name).flatMap { unsafe Int(String(cString: $0)) }
  }
}

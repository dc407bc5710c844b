/// Counts with their nouns, for messages.
package enum CountText {
  /// `1 key`, `2 keys`; `plural` is for nouns that take more than an "s".
  package static func of(_ count: some BinaryInteger, noun: String, plural: String? = nil) -> String {
    "\(count) \(count == 1 ? noun : plural ?? noun + "s")"
  }
}

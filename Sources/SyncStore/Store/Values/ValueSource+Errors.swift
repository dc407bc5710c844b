/// Errors of a value and their paths. The path is found by a second walk to the item, so that it costs
/// nothing without an error.
extension ValueSource {
  func mismatch<Wanted>(_ wanted: Wanted.Type, at: Int) -> DecodingError {
    mismatch(wanted, words: "a value of type \(wanted)", at: at)
  }

  /// `mismatch` with a description of what was expected, where its type is not one that a program has named.
  func mismatch<Wanted>(_ wanted: Wanted.Type, words: String, at: Int) -> DecodingError {
    if isNull(at: at) {
      return .valueNotFound(wanted, context(at: at, code: .wrongType, what: "is null, not \(words)"))
    }
    return .typeMismatch(wanted, context(at: at, code: .wrongType, what: "is \(head(at).noun), not \(words)"))
  }

  func outOfRange<Wanted>(_ shown: String, wanted: Wanted.Type, at: Int) -> DecodingError {
    corrupted(at: at, code: .outOfBounds, what: "is \(shown), which \(wanted) cannot hold")
  }

  func missing(_ key: some CodingKey, at: Int) -> DecodingError {
    .keyNotFound(key, context(at: at, code: .wrongType, what: "has no \"\(key.stringValue)\""))
  }

  func corrupted(at: Int, code: StoreError.Code, what: String) -> DecodingError {
    .dataCorrupted(context(at: at, code: code, what: what))
  }

  func atEnd<Wanted>(_ wanted: Wanted.Type, at: Int) -> DecodingError {
    .valueNotFound(wanted, context(at: at, code: .wrongType, what: "has no more elements"))
  }

  private func context(at: Int, code: StoreError.Code, what: String) -> DecodingError.Context {
    let path = path(to: at)
    let subject = path.isEmpty ? "the value" : Self.description(of: path)
    return DecodingError.Context(
      codingPath: path, debugDescription: what, underlyingError: StoreError(code, "\(subject) \(what)"))
  }

  /// The path as text: `address.lines[2]`.
  static func description(of path: [any CodingKey]) -> String {
    path.reduce("") { text, key in
      let name = key.stringValue
      return text.isEmpty || name.hasPrefix("[") ? text + name : text + "." + name
    }
  }

  /// A key as text, whatever its type: an error here would recurse.
  private func name(at place: Int) -> String {
    let head = head(place)
    guard head.major == CBOR.Major.text else { return "?" }
    return bytes.text(head.next..<(head.next + Int(head.argument))) ?? "?"
  }

  /// The keys and indices that lead to the item at `target`.
  func path(to target: Int) -> [any CodingKey] {
    var path: [any CodingKey] = []
    var at = 0
    while at < target, at < bytes.count {
      let head = head(at)
      var next: Int?
      var place = head.next
      switch head.major {
      case CBOR.Major.tag: next = place
      case CBOR.Major.array:
        for index in 0..<Int(head.argument) {
          let end = skip(place)
          if target < end {
            path.append(ValueKey(index: index))
            next = place
            break
          }
          place = end
        }
      case CBOR.Major.map:
        for _ in 0..<Int(head.argument) {
          let value = skip(place)
          let end = skip(value)
          if target < end {
            path.append(ValueKey(stringValue: name(at: place)))
            next = value
            break
          }
          place = end
        }
      default: break
      }
      guard let next else { return path }
      at = next
    }
    return path
  }
}

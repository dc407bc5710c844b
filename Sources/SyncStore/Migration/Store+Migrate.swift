/// The type as which to read a value of an MMKV file, which does not record it.
public enum MMKVKind: Hashable, Sendable {
  /// The unchanged bytes that MMKV keeps.
  case raw
  /// A buffer of bytes.
  case data
  /// A text.
  case string
  /// A truth value.
  case bool
  /// Any integer.
  case integer
  /// A `float`; stored as a double.
  case float
  /// A `double`.
  case double
  /// Skip the value.
  case skip
}

extension Store {
  /// Imports each key of an MMKV file, with its expiry time. The file is not changed.
  ///
  /// ```swift
  /// let file = try MMKVFile(path: "mmkv/settings")
  /// try store.importAll(from: file) { key in key.hasPrefix("count") ? .integer : .string }
  /// ```
  ///
  /// - Parameters:
  ///   - prefix: prepended to the keys.
  ///   - kind: the type as which to read a key's value. A value that does not fit is skipped and counted. A
  ///     key that is not UTF-8 is passed with U+FFFD in place of invalid bytes; the imported key has the
  ///     original bytes.
  /// - Throws: as `put`. Atomicity and durability as for `importAll(from:)` of a store.
  @discardableResult
  public func importAll(
    from file: MMKVFile, prefix: String = "", conflict: ImportConflict = .replace, kind: (String) -> MMKVKind
  ) throws -> ImportReport {
    var batch = ImportBatch(self, conflict)
    for name in file.keyBytes {
      let kind = kind(String(decoding: name, as: UTF8.self))
      guard kind != .skip else { continue }
      guard let value = Self.value(in: file, name: name, kind: kind),
        let key = try? Key(bytes: Array(prefix.utf8) + name)
      else {
        batch.report.skipped += 1
        continue
      }
      let deadline = file.deadline(name)
      try batch.add(key, Value(bytes: value.bytes, type: value.type, deadline: deadline))
    }
    return try batch.finish()
  }

  private static func value(in file: MMKVFile, name: [UInt8], kind: MMKVKind) -> (
    bytes: [UInt8], type: ValueType
  )? {
    switch kind {
    case .raw: file.raw(name).map { ($0, .bytes) }
    case .data: file.data(name).map { ($0, .bytes) }
    case .string: file.string(name).map { (Array($0.utf8), .string) }
    case .bool: file.bool(name).map { ([$0 ? 1 : 0], .bool) }
    case .integer: file.integer(name).map { (PropertyList.integer($0).encoded.bytes, .int) }
    case .float: file.float(name).map { (PropertyList.real(Double($0)).encoded.bytes, .double) }
    case .double: file.double(name).map { (PropertyList.real($0).encoded.bytes, .double) }
    case .skip: nil
    }
  }

  /// Imports each key of a property list whose root is a dictionary, such as preferences. The file is not
  /// changed.
  ///
  /// Texts, numbers, truth values, dates and data become values of the type of that name (data: `bytes`).
  /// Arrays and dictionaries become JSON: data in them base 64, dates seconds since 1970.
  ///
  /// - Parameters:
  ///   - path: an XML property list in UTF-8, UTF-16 or ISO 8859-1, or a binary one.
  ///   - prefix: prepended to the keys.
  /// - Throws: `.foreignFile` if it is no property list, or its root is no dictionary; as `put`. Atomicity
  ///   and durability as for `importAll(from:)` of a store.
  @discardableResult
  public func importAll(
    fromPropertyListAt path: String, prefix: String = "", conflict: ImportConflict = .replace
  ) throws -> ImportReport {
    let storage = environment.storage.unanchored
    let path = try storage.fileToRead(path, "a property list").path
    guard let bytes = try storage.contents(of: path, limit: PropertyList.limit) else {
      throw StoreError(.inputOutput, "there is no such file: name a property list", path: path)
    }
    let (list, merged) = try PropertyList.readCounting(bytes, path: path)
    guard case .dictionary(let entries) = list else {
      throw StoreError(.foreignFile, "is a property list without keys: its root is no dictionary", path: path)
    }
    var batch = ImportBatch(self, conflict)
    batch.report.merged = merged
    for (name, value) in entries.sorted(by: { $0.key < $1.key }) {
      let (bytes, type) = value.encoded
      try batch.add(Array((prefix + name).utf8), value: bytes, type: type)
    }
    return try batch.finish()
  }
}

/// Converts the encodings of XML property lists to UTF-8: UTF-8 and UTF-16 with or without a byte order mark,
/// and those that the XML declaration names (ISO 8859-1, ASCII).
enum XMLEncoding {
  /// The text of a document as UTF-8, without a byte order mark.
  ///
  /// - Throws: if the bytes do not match the encoding that they begin with, or that the declaration names.
  static func utf8(_ bytes: [UInt8]) throws(DecodingFailure) -> [UInt8] {
    if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { return try validated(bytes[3...]) }
    if bytes.starts(with: [0xFE, 0xFF]) { return try utf16(bytes[2...], isBigEndian: true) }
    if bytes.starts(with: [0xFF, 0xFE]) { return try utf16(bytes[2...], isBigEndian: false) }
    // Without a mark: the document begins with "<".
    if bytes.starts(with: [0x00, 0x3C]) { return try utf16(bytes[...], isBigEndian: true) }
    if bytes.starts(with: [0x3C, 0x00]) { return try utf16(bytes[...], isBigEndian: false) }
    switch declaredName(bytes) {
    case nil, "utf-8", "utf8", "us-ascii", "ascii": return try validated(bytes[...])
    case "iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "latin-1", "l1":
      // The first 256 scalars of Unicode.
      return Array(String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) })).utf8)
    case let name?:
      throw DecodingFailure("its encoding \"\(name)\" is not one that is read: convert it to UTF-8")
    }
  }

  private static func validated(_ bytes: ArraySlice<UInt8>) throws(DecodingFailure) -> [UInt8] {
    guard String(validating: bytes, as: UTF8.self) != nil else { throw DecodingFailure("it is not UTF-8") }
    return Array(bytes)
  }

  private static func utf16(
    _ bytes: ArraySlice<UInt8>, isBigEndian: Bool
  ) throws(DecodingFailure) -> [UInt8] {
    guard bytes.count % 2 == 0 else { throw DecodingFailure("it is UTF-16 with half a unit at its end") }
    let units = stride(from: bytes.startIndex, to: bytes.endIndex, by: 2).map { place in
      let (first, second) = (UInt16(bytes[place]), UInt16(bytes[place + 1]))
      return isBigEndian ? first << 8 | second : second << 8 | first
    }
    guard let text = String(validating: units, as: UTF16.self) else {
      throw DecodingFailure("it begins as UTF-16, and is not")
    }
    return Array(text.utf8)
  }

  /// The encoding named by `<?xml … encoding="NAME" …?>`, in lower case; nil without one.
  private static func declaredName(_ bytes: [UInt8]) -> String? {
    guard bytes.starts(with: "<?xml".utf8),
      let end = bytes.prefix(1024).firstIndex(of: UInt8(ascii: ">")),
      let start = bytes[..<end].firstRange(of: "encoding".utf8)?.upperBound
    else { return nil }
    let isQuote = { (byte: UInt8) in byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'") }
    guard let open = bytes[start..<end].firstIndex(where: isQuote) else { return nil }
    let name = bytes[(open + 1)..<end].prefix { $0 != bytes[open] }
    return String(decoding: name, as: UTF8.self).lowercased()
  }
}

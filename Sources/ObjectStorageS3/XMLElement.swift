internal import SyncStore

/// An element of an XML document: its name without a namespace, its elements and its text.
///
/// Reads the part of XML that S3 answers with. Anything else is refused: document types, and so entities of
/// their own; more than 12 levels; a document that does not end.
struct XMLElement: Sendable {
  var name: String
  var children: [XMLElement] = []
  var text = ""

  /// The first child of that name.
  subscript(name: String) -> XMLElement? { children.first { $0.name == name } }

  /// Parses a document.
  ///
  /// - Throws: if it is truncated or malformed.
  init(parsing bytes: [UInt8]) throws(DecodingFailure) {
    guard String(validating: bytes, as: UTF8.self) != nil else { throw DecodingFailure("it is not UTF-8") }
    var reader = Reader(bytes: bytes)
    try reader.skipBetweenElements()
    self = try reader.element(depth: 0)
    try reader.skipBetweenElements()
    guard reader.isAtEnd else { throw DecodingFailure("it continues after its end") }
  }

  private init(name: String) { self.name = name }

  private struct Reader {
    let bytes: [UInt8]
    var index = 0

    init(bytes: [UInt8]) {
      self.bytes = bytes
      if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { index = 3 }
    }

    var isAtEnd: Bool { index == bytes.count }

    /// Skips blanks, declarations and comments.
    mutating func skipBetweenElements() throws(DecodingFailure) {
      while index < bytes.count {
        if Self.isBlank(bytes[index]) {
          index += 1
        } else if starts(with: "<?") {
          _ = try take(through: "?>")
        } else if starts(with: "<!--") {
          _ = try take(through: "-->")
        } else {
          return
        }
      }
    }

    mutating func element(depth: Int) throws(DecodingFailure) -> XMLElement {
      guard depth < 12 else { throw DecodingFailure("its elements lie too deep") }
      guard starts(with: "<"), !starts(with: "<!") else { throw DecodingFailure("it holds no element") }
      index += 1
      let name = try name()
      var element = XMLElement(name: Self.local(name))
      if try skipAttributes() { return element }
      var text: [UInt8] = []
      while true {
        guard index < bytes.count else { throw DecodingFailure("it ends too early") }
        if bytes[index] == UInt8(ascii: "&") {
          text += try entity()
        } else if bytes[index] != UInt8(ascii: "<") {
          text.append(bytes[index])
          index += 1
        } else if starts(with: "</") {
          index += 2
          guard try self.name().elementsEqual(name) else {
            throw DecodingFailure("an element ends as another")
          }
          while index < bytes.count, Self.isBlank(bytes[index]) { index += 1 }
          guard starts(with: ">") else { throw DecodingFailure("an end tag does not end") }
          index += 1
          element.text = String(decoding: text, as: UTF8.self)
          return element
        } else if starts(with: "<!--") {
          _ = try take(through: "-->")
        } else if starts(with: "<![CDATA[") {
          index += 9
          text += try take(through: "]]>")
        } else {
          element.children.append(try self.element(depth: depth + 1))
        }
      }
    }

    private mutating func name() throws(DecodingFailure) -> ArraySlice<UInt8> {
      let start = index
      while index < bytes.count, !Self.isBlank(bytes[index]), !"/><=".utf8.contains(bytes[index]) {
        index += 1
      }
      guard index > start else { throw DecodingFailure("an element has no name") }
      return bytes[start..<index]
    }

    /// Skips to the end of a start tag. Returns whether the element is empty (`<name/>`).
    private mutating func skipAttributes() throws(DecodingFailure) -> Bool {
      while index < bytes.count {
        let byte = bytes[index]
        index += 1
        switch byte {
        case UInt8(ascii: ">"): return false
        case UInt8(ascii: "/") where starts(with: ">"):
          index += 1
          return true
        case UInt8(ascii: "\""): _ = try take(through: "\"")
        case UInt8(ascii: "'"): _ = try take(through: "'")
        case UInt8(ascii: "<"): throw DecodingFailure("a start tag does not end")
        default: break
        }
      }
      throw DecodingFailure("it ends too early")
    }

    private mutating func entity() throws(DecodingFailure) -> [UInt8] {
      index += 1
      return try XMLEntity.bytes(named: String(decoding: try take(through: ";").prefix(12), as: UTF8.self))
    }

    private func starts(with text: StaticString) -> Bool {
      bytes[index...].starts(with: text.description.utf8)
    }

    /// The bytes up to `end`, which is skipped.
    private mutating func take(through end: String) throws(DecodingFailure) -> ArraySlice<UInt8> {
      let start = index
      while index < bytes.count {
        if bytes[index...].starts(with: end.utf8) {
          defer { index += end.utf8.count }
          return bytes[start..<index]
        }
        index += 1
      }
      throw DecodingFailure("it ends too early")
    }

    /// The name without the prefix of its namespace.
    private static func local(_ name: ArraySlice<UInt8>) -> String {
      String(decoding: name.lastIndex(of: UInt8(ascii: ":")).map { name[($0 + 1)...] } ?? name, as: UTF8.self)
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
      byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D
    }
  }
}

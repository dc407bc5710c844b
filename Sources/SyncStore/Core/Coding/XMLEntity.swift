/// The entities that XML documents without a document type can name.
package enum XMLEntity {
  /// The bytes that an entity stands for: one of the five predefined ones (XML 1.0, 4.6), or a character by
  /// its number (4.1). `name` is the text between `&` and `;`.
  package static func bytes(named name: String) throws(DecodingFailure) -> [UInt8] {
    switch name {
    case "amp": return [0x26]
    case "lt": return [0x3C]
    case "gt": return [0x3E]
    case "quot": return [0x22]
    case "apos": return [0x27]
    default:
      let number =
        name.hasPrefix("#x")
        ? UInt32(name.dropFirst(2), radix: 16) : name.hasPrefix("#") ? UInt32(name.dropFirst()) : nil
      guard let number, let scalar = Unicode.Scalar(number) else {
        throw DecodingFailure("it names an entity that is none")
      }
      return Array(String(Character(scalar)).utf8)
    }
  }
}

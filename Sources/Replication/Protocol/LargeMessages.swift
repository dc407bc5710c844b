internal import SyncStore

// Messages that end with a large encrypted part, which is not copied on its way.
extension Message {
  /// The bytes of the frame, in order. A large part is a piece of its own and is not copied.
  package var pieces: [[UInt8]] {
    switch self {
    case .batch(let index, let encrypted):
      return Message.batch(index: index, encrypted: []).frame.bytes(with: encrypted)
    case .blobRange(var range):
      let encrypted = range.encrypted
      range.encrypted = []
      return Message.blobRange(range).frame.bytes(with: encrypted)
    default: return [frame.bytes]
    }
  }

  /// Decodes a message that ends with an encrypted part, which stays in its memory.
  static func readLarge(_ type: MessageType, from payload: inout [UInt8]) throws(DecodingFailure)
    -> Message
  {
    // Covers the fields before the encrypted part of every such message.
    let head = Array(payload.prefix(64))
    var reader = ByteReader(head)
    let message = try read(type, from: &reader)
    var encrypted: [UInt8] = []
    swap(&encrypted, &payload)
    switch message {
    case .batch(let index, let start):
      encrypted.removeFirst(head.count - start.count)
      return .batch(index: index, encrypted: encrypted)
    case .blobRange(var range):
      encrypted.removeFirst(head.count - range.encrypted.count)
      range.encrypted = encrypted
      return .blobRange(range)
    default: preconditionFailure("no other message ends with encrypted bytes")
    }
  }
}

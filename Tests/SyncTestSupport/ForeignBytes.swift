import Replication
import SyncStore

/// Untrusted bytes, for each kind of reader: decoding either throws or yields a value that round-trips. The
/// fuzzer runs these (`Fuzz/Targets`), and the tests run them on the kept inputs (`Fuzz/Corpus`).
package enum ForeignBytes {
  /// The readers by the names of their fuzz targets.
  package static let readers: [String: @Sendable ([UInt8]) -> Void] = [
    "Frames": frames, "Records": records, "Tokens": tokens, "Values": values, "PropertyLists": propertyLists,
    "MMKVFiles": mmkvFiles, "Backups": backups, "Stores": stores, "Vectors": vectors,
    "Catalogues": catalogues, "Forgeries": forgeries,
  ]

  /// Frames, fed in pieces as from a connection; each frame is decoded. The first byte chooses the cuts.
  package static func frames(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    let stages: [FrameStage] = [.handshake, .session, .pairing]
    var decoder = FrameDecoder(stage: stages[Int(first) % stages.count])
    let piece = max(1, Int(first) / stages.count)
    for place in stride(from: 1, to: bytes.count, by: piece) {
      decoder.append(Array(bytes[place..<min(place + piece, bytes.count)]))
      do {
        while let frame = try decoder.next() {
          guard let message = try Message.decode(frame) else { continue }
          // The bytes may differ: fields that a later version adds to the greeting are skipped.
          precondition(
            (try? Message.decode(message.frame)) == message, "a message does not come back: \(message)")
        }
      } catch { return }
    }
  }

  /// The content of a batch or recipe after decryption, inflated if it is deflated.
  package static func records(_ bytes: [UInt8]) {
    if let payload = try? RecordCodec.decode(bytes) {
      precondition(
        (try? RecordCodec.decode(RecordCodec.encode(payload))) == payload, "records do not come back")
    }
    if let recipe = try? RecipeCodec.decode(bytes, offset: 0, size: 1 << 40) {
      precondition(RecipeCodec.encode(recipe.chunks) == bytes, "a recipe does not come back")
    }
    // The stream, and its stated decompressed size.
    guard bytes.count > 2 else { return }
    let count = Int(bytes[0]) << 8 | Int(bytes[1])
    if let payload = Compression.inflate(Array(bytes[2...]), count: count) {
      precondition(payload.count == count, "inflated to \(payload.count) bytes, not \(count)")
      _ = try? RecordCodec.decode(payload)
    }
  }

  /// Text parsed as an invitation token, an address, a file of group keys, and stored member data.
  package static func tokens(_ bytes: [UInt8]) {
    let text = String(decoding: bytes, as: UTF8.self)
    if let invitation = try? Invitation(text: text) {
      precondition((try? Invitation(text: invitation.text)) == invitation, "a token does not come back")
    }
    if let endpoint = Endpoint(text) {
      precondition(Endpoint(endpoint.description) == endpoint, "an address does not come back: \(endpoint)")
    }
    if let position = ChangePosition(text) {
      precondition(ChangePosition(position.description) == position, "a position does not come back")
    }
    _ = try? GroupKeyRing(text: text)
    _ = PendingInvitation(bytes: bytes)
  }

  // MARK: Values

  private struct Shape: Codable {
    var number: Int?
    var text: String?
    var list: [Shape]?
    var table: [String: Double]?
    var bytes: [UInt8]?
    var flag: Bool?
    var small: Int8?
    var single: Float?
  }

  /// A typed value: the first byte is the type, the rest the value's bytes.
  package static func values(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    let type = ValueType(rawValue: first)
    let form = EncodedValue(bytes: Array(bytes.dropFirst()), type: type)
    comesBack(form, as: Shape.self)
    comesBack(form, as: [Shape].self)
    comesBack(form, as: [String: [Int]].self)
    comesBack(form, as: [String].self)
    comesBack(form, as: [UInt8].self)
    comesBack(form, as: [Float].self)
    comesBack(form, as: String.self)
    comesBack(form, as: UInt64.self)
    comesBack(form, as: Int16.self)
    comesBack(form, as: Double.self)
    comesBack(form, as: Bool.self)
    guard type == .cbor, let tree = try? CodedItem(decoding: form.bytes) else { return }
    precondition((try? CodedItem(decoding: tree.bytes)) == tree, "a tree does not come back")
  }

  private static func comesBack<Content: Codable>(_ form: EncodedValue, as _: Content.Type) {
    guard let value = try? form.decoded(as: Content.self) else { return }
    guard let again = try? EncodedValue(value) else {
      preconditionFailure("what was read cannot be written: \(value)")
    }
    // NaN is not equal to itself: compare the encoded forms.
    let back = try? EncodedValue(try again.decoded(as: Content.self))
    precondition(back == again, "a value does not come back: \(value)")
  }

  // MARK: Files

  /// A property list in either format.
  package static func propertyLists(_ bytes: [UInt8]) {
    _ = try? PropertyList.read(bytes, path: "list")
  }

  /// An MMKV file. The first byte says how many of the others form its companion file, and whether there is a
  /// key.
  package static func mmkvFiles(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    let meta = min(Int(first & 0x7F), bytes.count - 1)
    let storage = SimulatedStorage()
    do {
      if meta > 0 { try storage.replace("/mmkv.crc", with: Array(bytes[1...meta])) }
      try storage.replace("/mmkv", with: Array(bytes[(meta + 1)...]))
      let file = try MMKVFile(path: "/mmkv", cryptKey: first >> 7 == 1 ? Array("a key".utf8) : nil, storage)
      for key in file.keys {
        _ = (file.raw(key), file.deadline(key), file.bool(key), file.integer(key), file.float(key))
        _ = (file.double(key), file.data(key), file.string(key))
      }
    } catch { return }
  }

  /// A backup: inspected, verified, restored. The restored store is opened.
  package static func backups(_ bytes: [UInt8]) {
    let host = SimulatedHost(encrypted: false)
    do {
      try host.storage.replace("/backup", with: bytes)
      _ = try Store.backupSummary(of: "/backup", host.storage)
      try Store.verifyBackup("/backup", host.storage)
      _ = try Store.restore(
        from: "/backup", to: "/store", state: nil, replacing: false, environment: host.environment)
      let store = try Store.open(on: host)
      _ = try store.verify()
      try store.close()
    } catch { return }
  }
}

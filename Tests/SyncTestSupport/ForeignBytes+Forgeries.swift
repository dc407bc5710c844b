private import SyncStore

extension ForeignBytes {
  private static let plain = Result { try StoreTemplate(encrypted: false, isLong: true) }
  private static let encrypted = Result { try StoreTemplate(encrypted: true, isLong: true) }

  /// A store with one file forged by an attacker who knows the format: checksums and check bits over the
  /// changed bytes are recomputed, as far as that needs no key. The first byte chooses the file, whether the
  /// store is encrypted, and whether offsets count all bytes or only those outside values; every three of the
  /// other bytes change one. An unencrypted store may then return anything; an encrypted one only what was
  /// written.
  package static func forgeries(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    guard let template = try? (first & 0x80 == 0 ? plain : encrypted).get(),
      let host = try? template.machine()
    else { preconditionFailure("no store to be forged") }
    let path = template.names[Int(first & 0x3F) % template.names.count]
    do {
      if let file = template.files[path], !file.isEmpty {
        var forgery = Forgery(of: file, named: String(path.dropFirst("/store/".count)))
        forgery.change(Array(bytes[1...]), amongFields: first & 0x40 != 0)
        forgery.guardAgain()
        try host.storage.restore([path: forgery.bytes])
        host.killProcesses()
      }
      try look(at: host, template, values: first & 0x80 != 0)
    } catch is StoreError { return } catch { preconditionFailure("\(error)") }
  }
}

/// A store file that is changed together with its checksums. Layouts: `schemas/`.
private struct Forgery {
  private let name: String
  private let original: [UInt8]
  private(set) var bytes: [UInt8]
  private var changed: Set<Int> = []

  init(of file: [UInt8], named name: String) { (self.name, original, bytes) = (name, file, file) }

  mutating func change(_ edits: [UInt8], amongFields: Bool) {
    let fields = amongFields ? self.fields : []
    for edit in stride(from: 0, to: edits.count - 2, by: 3) {
      let number = Int(edits[edit]) << 8 | Int(edits[edit + 1])
      let place = fields.isEmpty ? number % bytes.count : fields[number % fields.count]
      bytes[place] ^= edits[edit + 2]
      changed.insert(place)
    }
  }

  /// Offsets of mostly meaningful bytes: headers, tables, the beginnings of records and pages.
  private var fields: [Int] {
    let parts: [Range<Int>] =
      if name == "index" || name == "ledger" {
        [40..<360] + words
      } else if name.hasPrefix("blobs/packs/") {
        [0..<48, 1024..<1056, 4096..<4096 + 64 * Int(integer(1024, 4, of: original))]
      } else if name.hasPrefix("journal/") {
        [0..<128] + segmentRecords.map { $0.lowerBound..<min($0.lowerBound + 96, $0.upperBound) }
      } else {
        [0..<bytes.count]
      }
    return parts.flatMap { Array($0.clamped(to: 0..<bytes.count)) }
  }

  mutating func guardAgain() {
    switch name {
    case "STORE": guardText(dropping: 1) { "checksum " + $0 }
    case "keys/ring": guardText(dropping: 1) { "checksum " + $0 }
    case "index":
      guardWords()
      guardRange(0..<120, seed: 0)
    case "ledger":
      guardWords()
      guardRange(0..<24, seed: 0)
    default:
      if name.hasPrefix("blobs/packs/") { guardPack() }
      if name.hasPrefix("journal/") { guardSegment() }
    }
  }

  // MARK: Numbers

  private func integer(_ place: Int, _ count: Int, of file: [UInt8]) -> UInt64 {
    guard place >= 0, place + count <= file.count else { return 0 }
    return (0..<count).reversed().reduce(0) { $0 << 8 | UInt64(file[place + $1]) }
  }

  private mutating func set(_ value: UInt64, _ count: Int, at place: Int) {
    guard place >= 0, place + count <= bytes.count else { return }
    for index in 0..<count { bytes[place + index] = UInt8(truncatingIfNeeded: value >> (8 * UInt64(index))) }
  }

  /// Writes the checksum of a range, by default right after it.
  private mutating func guardRange(_ range: Range<Int>, seed: UInt64, at place: Int? = nil) {
    guard range.upperBound <= bytes.count else { return }
    set(XXH3.hash64(Array(bytes[range]), seed: seed), 8, at: place ?? range.upperBound)
  }

  // MARK: Files

  private mutating func guardText(dropping last: Int, _ line: (String) -> String) {
    let text = String(decoding: bytes, as: UTF8.self)
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast(last + 1)
    let body = lines.joined(separator: "\n")
    let checksum = String(XXH3.hash64(Array(body.utf8), seed: 0), radix: 16)
    bytes = Array((body + "\n" + line(checksum) + "\n").utf8)
  }

  private mutating func guardPack() {
    for copy in [0, 2048] { guardRange(copy..<copy + 40, seed: 0x4B43_4150_434E_5953) }
    let salt = integer(32, 8, of: bytes)
    for entry in stride(from: 4096, to: Int(integer(12, 4, of: original)), by: 64)
    where touches(entry..<entry + 48) || touches(32..<40) {
      guardRange(entry..<entry + 48, seed: salt, at: entry + 56)
    }
  }

  private mutating func guardSegment() {
    for copy in [0, 2048] { guardRange(copy..<copy + 120, seed: 0) }
    let salt = integer(48, 8, of: bytes)
    for record in segmentRecords where touches(record) || touches(48..<56) {
      let place = record.lowerBound
      let stated = max(8, min(Int(integer(place + 4, 4, of: bytes)), bytes.count - place))
      let hash = XXH3.hash64(Array(bytes[place + 4..<place + stated]), seed: salt &+ UInt64(place))
      set(hash & 0xFFFF_FFFF, 4, at: place)
    }
  }

  /// The records of the original segment.
  private var segmentRecords: [Range<Int>] {
    var records: [Range<Int>] = []
    var place = 4096
    while place + 40 <= original.count {
      let length = Int(integer(place + 4, 4, of: original))
      guard length >= 40, place + length <= original.count else { break }
      records.append(place..<place + length)
      place += (length + 7) & ~7
    }
    return records
  }

  private func touches(_ range: Range<Int>) -> Bool { changed.contains { range.contains($0) } }

  // MARK: Checked words

  /// Words after the first page, without those of free index slots.
  private var words: [Range<Int>] {
    stride(from: 4096, to: original.count, by: 8).filter {
      ![0, 0xE000_FFFF_FFFF_FFFF, 0xD001_FFFF_FFFF_FFFE].contains(integer($0, 8, of: original))
    }.map { $0..<$0 + 8 }
  }

  /// Recomputes the check bits of changed words of every kind.
  private mutating func guardWords() {
    for place in Set(changed.map { $0 & ~7 }) {
      let word = integer(place, 8, of: original)
      if Self.checked(word, 7) == word {
        set(Self.checked(integer(place, 8, of: bytes), 7), 8, at: place)
      } else if [0, 4].contains(where: { part in
        let entry = integer(place + part, 4, of: original)
        return Self.checked(entry, 3) == entry
      }) {
        for part in [place, place + 4] { set(Self.checked(integer(part, 4, of: bytes), 3), 4, at: part) }
      } else if place & 4095 >= 3264 {
        for part in stride(from: place, to: place + 8, by: 2) {
          let extra = integer(part, 2, of: bytes)
          if extra.nonzeroBitCount & 1 == 0 { set(extra ^ 1 << 15, 2, at: part) }
        }
      } else if word.nonzeroBitCount & 1 == 1 {
        let slot = integer(place, 8, of: bytes)
        if slot.nonzeroBitCount & 1 == 0 { set(slot ^ 1 << (place < 4096 ? 0 : 47), 8, at: place) }
      }
    }
  }

  /// `count` bytes with their exclusive or above them.
  private static func checked(_ word: UInt64, _ count: UInt64) -> UInt64 {
    let number = word & (1 << (8 * count) - 1)
    let check = (0..<count).reduce(0xA5) { $0 ^ (number >> (8 * $1) & 0xFF) }
    return number | check << (8 * count)
  }
}
